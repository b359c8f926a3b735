"""The records, and the tables that are made of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

ID = sa.String(32).with_variant(sa.String(32, collation="C"), "postgresql")
TIME = sa.DateTime(timezone=True)
NUMBERS = """
    kernels launches graph_launches memcpys memcpys_h2d memcpys_d2h memcpys_d2d memcpy_bytes memsets syncs
    kernel_time_us gpu_time_us gpu_busy_us gpu_span_us cpu_time_us cpu_gpu_ratio gpu_utilization sm_efficiency
    achieved_occupancy graph_breaks recompiles peak_memory_bytes
"""


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "record",
        sa.Column("uuid", ID, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("packed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "commit",
        sa.Column("id", ID, primary_key=True),
        sa.Column("project", sa.Text),
        sa.Column("folder", sa.Text, nullable=False),
        sa.Column("sha", sa.String(64), nullable=False),
        sa.Column("parents", sa.JSON, nullable=False),
        sa.Column("date", TIME, nullable=False),
        sa.Column("ancestors", sa.JSON, nullable=False),
        sa.Column("shallow", sa.Boolean, nullable=False),
    )
    op.create_table(
        "machine",
        sa.Column("id", ID, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("gpu", "cpu", "driver")),
    )
    op.create_table(
        "environment",
        sa.Column("id", ID, primary_key=True),
        *(sa.Column(name, sa.Text) for name in ("gpu", "cpu", "torch", "cuda", "rocm", "triton", "python", "driver")),
        sa.Column("others", sa.JSON, nullable=False),
    )
    op.create_table("test", sa.Column("id", ID, primary_key=True), sa.Column("nodeid", sa.Text, nullable=False))
    op.create_table(
        "structure",
        sa.Column("id", ID, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kernels", sa.JSON, nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("uuid", ID, sa.ForeignKey("record.uuid"), primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("began", TIME, nullable=False),
        sa.Column("ended", TIME, nullable=False),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text) for name in ("ci_provider", "ci_run", "ci_attempt", "ci_job")),
        sa.Column("commit", ID, sa.ForeignKey("commit.id")),
        sa.Column("branch", sa.Text),
        sa.Column("dirty", sa.Boolean),
        sa.Column("machine", ID, sa.ForeignKey("machine.id"), nullable=False),
    )
    op.create_index("run_commit", "run", ["commit"])
    op.create_table(
        "measurement",
        sa.Column("run", ID, sa.ForeignKey("run.uuid"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("test", ID, sa.ForeignKey("test.id"), nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("rank", sa.BigInteger),
        sa.Column("ranks", sa.BigInteger),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("environment", ID, sa.ForeignKey("environment.id")),
        sa.Column("structure", ID, sa.ForeignKey("structure.id")),
        sa.Column("baseline", sa.Text),
        sa.Column("findings", sa.JSON, nullable=False),
        sa.Column("time_median_us", sa.Float(53)),
        sa.Column("time", sa.JSON),
        *(sa.Column(name, sa.Float(53)) for name in NUMBERS.split()),
        sa.Column("others", sa.JSON, nullable=False),
    )
    op.create_index("measurement_test", "measurement", ["test"])
