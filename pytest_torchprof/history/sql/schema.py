"""The tables: the records as they are, and what is in them, one schema for SQLite and PostgreSQL.

What stands in several runs is one row, which a digest of its content names; nothing derived is stored.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

REVISIONS: Final = ("0001", "0002")
"""The schemas by their age, as the folder of versions has them; the last is that of the tables below."""
VERSION_TABLE: Final = "torchprof_schema"
NUMBERS: Final = (
    "kernels",
    "launches",
    "graph_launches",
    "memcpys",
    "memcpys_h2d",
    "memcpys_d2h",
    "memcpys_d2d",
    "memcpy_bytes",
    "memsets",
    "syncs",
    "kernel_time_us",
    "gpu_time_us",
    "gpu_busy_us",
    "gpu_span_us",
    "cpu_time_us",
    "cpu_gpu_ratio",
    "gpu_utilization",
    "sm_efficiency",
    "achieved_occupancy",
    "graph_breaks",
    "recompiles",
    "peak_memory_bytes",
)
"""The numbers with a column of their own; others stand together in one."""

METADATA: Final = MetaData()
# Ids are compared byte by byte everywhere, so that all stores give records in one order.
_ID: Final = String(32).with_variant(String(32, collation="C"), "postgresql")
_TIME: Final = DateTime(timezone=True)

RECORD: Final = Table(
    "record",
    METADATA,
    Column("uuid", _ID, primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("packed", LargeBinary, nullable=False),
)
COMMIT: Final = Table(
    "commit",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("project", Text),
    Column("folder", Text, nullable=False),
    Column("sha", String(64), nullable=False),
    Column("parents", JSON, nullable=False),
    Column("date", _TIME, nullable=False),
    Column("ancestors", JSON, nullable=False),
    Column("shallow", Boolean, nullable=False),
)
MACHINE: Final = Table(
    "machine",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("digest", Text, nullable=False),
    Column("gpu", Text),
    Column("cpu", Text),
    Column("driver", Text),
)
ENVIRONMENT: Final = Table(
    "environment",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("gpu", Text),
    Column("cpu", Text),
    Column("torch", Text),
    Column("cuda", Text),
    Column("rocm", Text),
    Column("triton", Text),
    Column("python", Text),
    Column("driver", Text),
    Column("others", JSON, nullable=False),
)
TEST: Final = Table("test", METADATA, Column("id", _ID, primary_key=True), Column("nodeid", Text, nullable=False))
STRUCTURE: Final = Table(
    "structure",
    METADATA,
    Column("id", _ID, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kernels", JSON, nullable=False),
)
RUN: Final = Table(
    "run",
    METADATA,
    Column("uuid", _ID, ForeignKey("record.uuid"), primary_key=True),
    Column("version", Text, nullable=False),
    Column("began", _TIME, nullable=False),
    Column("ended", _TIME, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("event", Text, nullable=False),
    Column("ci_provider", Text),
    Column("ci_run", Text),
    Column("ci_attempt", Text),
    Column("ci_job", Text),
    Column("commit", _ID, ForeignKey("commit.id")),
    Column("branch", Text),
    Column("dirty", Boolean),
    Column("machine", _ID, ForeignKey("machine.id"), nullable=False),
    Index("run_commit", "commit"),
)
MEASUREMENT: Final = Table(
    "measurement",
    METADATA,
    Column("run", _ID, ForeignKey("run.uuid"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("test", _ID, ForeignKey("test.id"), nullable=False),
    Column("label", Text),
    Column("rank", BigInteger),
    Column("ranks", BigInteger),
    Column("device", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("code", Text),
    Column("source", Text),
    Column("environment", _ID, ForeignKey("environment.id")),
    Column("structure", _ID, ForeignKey("structure.id")),
    Column("baseline", Text),
    Column("findings", JSON, nullable=False),
    Column("time_median_us", Float(53)),
    Column("time", JSON(none_as_null=True)),
    *(Column(name, Float(53)) for name in NUMBERS),
    Column("others", JSON, nullable=False),
    Index("measurement_test", "test"),
)
NOTE: Final = Table(
    "note",
    METADATA,
    Column("kind", String(64), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("value", JSON, nullable=False),
    Column("when", _TIME, nullable=False),
)
"""What people say of runs, tests and commits: no record has it, and no rebuilding takes it away."""

SHARED: Final = (COMMIT, MACHINE, ENVIRONMENT, TEST, STRUCTURE)
"""The tables whose rows belong to several runs."""
FROM_RECORDS: Final = (*SHARED, RUN, MEASUREMENT)
"""All that is made of records, each behind those that it names."""
