"""The schemas say what the JSON holds: every output is checked by its schema, closed to other fields."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import forking
import msgspec
import pytest
from conftest import SHARED_TRACES
from facts import LEFT_OUT
from jobs import recording
from jsonschema import Draft202012Validator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from schema_checks import errors, schema_of

from pytest_torchprof.analysis.tables import WAYS
from pytest_torchprof.cli import main
from pytest_torchprof.cli.schema import SCHEMAS
from pytest_torchprof.report.ranks_report import JobsDifference

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.any_torch

ROOT = Path(__file__).parents[1]

# Those of this project come first, wherever the checkout lies.
OWN = sorted((Path(__file__).parent / "recordings").glob("*.json.gz"))
RECORDINGS = [*OWN, *(path for path in sorted(SHARED_TRACES.glob("*.json.gz")) if not path.name.startswith(LEFT_OUT))]
BASELINES = sorted((Path(__file__).parent / "baselines_before" / "schema_2").glob("*.json"))


def printed(capsys, *words):
    assert main(list(map(str, words))) in (0, 1, 3)
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_command_prints_a_schema(name, capsys):
    schema = printed(capsys, "schema", name)
    Draft202012Validator.check_schema(schema)
    assert schema == schema_of(name)


IMPORTS_ONLY = """
import sys

allowed = {*sys.stdlib_module_names, *sys.argv[1:]}

class Only:
    def find_spec(self, name, path=None, target=None):
        # Python names its own data for each platform.
        if name.partition(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Only())
from pytest_torchprof.cli.schema import SCHEMAS, schema_text
print(*[len(schema_text(name)) for name in SCHEMAS])
"""


def test_the_schemas_of_a_wheel_are_made_with_what_its_build_installs():
    """Which is less than the package needs where it runs: whoever installs from the source would meet what is missing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    distributions = installed_with(hook["dependencies"])
    modules = [
        module for module, of in packages_distributions().items() if distributions & {*map(canonicalize_name, of)}
    ]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_ONLY, "pytest_torchprof", *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, len(done.stdout.split())) == (0, len(SCHEMAS)), done.stderr


def installed_with(requirements: Iterable[str]) -> set[str]:
    """Return the names of the distributions that pip installs for these."""
    found: set[str] = set()
    wanted = [Requirement(text) for text in requirements]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            wanted += map(Requirement, requires(name) or ())
    return found


def test_a_schema_that_there_is_not_is_bad_usage(capsys):
    assert main(["schema", "trace"]) == 2
    assert "[bad-usage]" in capsys.readouterr().err


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_says_which_version_it_is_of(name):
    schema = schema_of(name)
    version = schema["title"].rpartition("schema ")[2]
    assert f'"schema": {{"const": {version}}}' in json.dumps(schema)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_the_analysis_of_every_recording_is_of_the_schema(recording, capsys):
    by = WAYS[RECORDINGS.index(recording) % len(WAYS)]
    assert errors("analysis", printed(capsys, "analyze", recording, "--json", "--by", by)) == []


@pytest.mark.parametrize("by", WAYS)
def test_each_table_of_the_analysis_is_of_the_schema(by, capsys):
    assert errors("analysis", printed(capsys, "analyze", OWN[0], "--json", "--by", by)) == []


def test_the_analysis_of_a_folder_is_of_the_schema(capsys):
    found = printed(capsys, "analyze", OWN[0].parent, "--json", "--no-findings")
    assert isinstance(found, list)
    assert errors("analysis", found) == []


@pytest.fixture
def job(tmp_path):
    """Return a function that writes the recordings of a job's ranks into a folder; rank 1 is late, and does ``more``."""

    def write(name, *, starts=((1000, 2000, 3000), (1050, 2050, 3050, 4050)), more=(), **told):
        (tmp_path / name).mkdir()
        for rank, (times, other) in enumerate(zip(starts, ((), more), strict=True)):
            recording(rank, times, more=other, **told).write(tmp_path / name / f"{rank}.json")
        return tmp_path / name

    return write


@pytest.fixture
def recorded_job(tmp_path, shared_trace):
    """Return the folder of two ranks of a recorded job of eight."""
    for rank in (0, 1):
        shutil.copy(shared_trace(f"a100_megatron_tp8_rank{rank}"), tmp_path)
    return tmp_path


@pytest.mark.parametrize("told", [{"more": ["gemm"]}, {"size": 3, "host": None}, {"starts": [(), ()]}], ids=str)
def test_the_ranks_of_a_job_are_of_the_schema(job, told, capsys):
    assert errors("ranks", printed(capsys, "analyze", job("job", **told), "--ranks", "--json")) == []


def test_the_ranks_of_a_recorded_job_are_of_the_schema(recorded_job, capsys):
    assert errors("ranks", printed(capsys, "analyze", recorded_job, "--ranks", "--json")) == []


def test_differences_of_jobs_are_of_the_schema(job, capsys):
    found = printed(capsys, "diff", job("before"), job("after", more=["gemm"]), "--ranks", "--json")
    assert found["kernels_differ"]
    assert errors("diff", found) == []


def test_jobs_whose_times_are_not_compared_are_of_the_schema(job, capsys):
    found = printed(capsys, "diff", job("before"), job("after"), "--ranks", "--json")
    unknown = msgspec.json.decode(msgspec.json.encode(JobsDifference()))
    assert found["all_ranks"].keys() == unknown.keys()
    assert errors("diff", found | {"all_ranks": unknown}) == []


def test_differences_of_recorded_jobs_are_of_the_schema(recorded_job, capsys):
    assert errors("diff", printed(capsys, "diff", recorded_job, recorded_job, "--ranks", "--json")) == []


def test_differences_of_recordings_are_of_the_schema(capsys):
    for first, second in pairwise(OWN[:7]):
        assert errors("diff", printed(capsys, "diff", first, second, "--json")) == []


def test_baselines_and_their_differences_are_of_the_schema(capsys):
    for path in BASELINES:
        assert errors("baseline", json.loads(path.read_text())) == []
    for first, second in pairwise(BASELINES):
        assert errors("diff", printed(capsys, "diff", first, second, "--json")) == []


RUN = """
def test_passes(torchprof):
    torchprof(torch.compile(lambda x: x + 1, backend="eager"), x).expect(max_graph_breaks=0, min_kernels=1)

@pytest.mark.torchprof(max_kernels=0)
def test_fails(torchprof):
    with torchprof.measure("two") as m:
        for _ in m.steps():
            x.sin().cos()

@pytest.mark.torchprof(tolerance={"time": 0.5})
def test_timed(torchprof):
    torchprof(torch.sin, x)

@pytest.mark.torchprof(max_kernels=1)
def test_skips_itself():
    pytest.skip("not here")

@pytest.mark.torchprof(max_kernels=1)
def test_measures_nothing(torchprof):
    pass

def test_rows(torchprof):
    for _ in range(2):
        torchprof(lambda: [x.sin() for _ in range(3)])
"""


def test_reports_and_written_baselines_are_of_the_schema(run_tests, pytester):
    for mode in ("update", "compare"):
        run_tests(RUN, f"--torchprof-baseline={mode}", "--torchprof-device=cpu", "--torchprof-report=report.json")
        report = json.loads((pytester.path / "report.json").read_text())
        assert errors("report", report) == []
        assert {one["outcome"] for one in report["results"]} >= {"passed", "failed", "not measured"}
    (written,) = (pytester.path / "__torchprof__").glob("*.json")
    assert errors("baseline", json.loads(written.read_text())) == []


def test_the_doctors_answers_are_of_the_schema(capsys, monkeypatch):
    monkeypatch.setattr("subprocess.Popen", forking.Popen)
    assert errors("doctor", printed(capsys, "doctor", "--json")) == []


def keys(value, before=()):
    """Yield the path to each field of an object and of those within it, first elements standing for their lists."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*before, name)
        yield from keys(inner, (*before, name))
    if isinstance(value, list) and value:
        yield from keys(value[0], (*before, 0))


def renamed(value, path):
    """Return a copy in which the field at the end of the path has another name."""
    copy = json.loads(json.dumps(value))
    holder = copy
    for name in path[:-1]:
        holder = holder[name]
    holder["another name"] = holder.pop(path[-1])
    return copy


def free(name, value, least):
    """Return the paths to fields that may have another name; ``least``: how many fields must be there."""
    fixed = [
        path for path in keys(value) if not {"evidence", "facts", "same", "numbers", "kinds"}.intersection(path[:-1])
    ]
    assert len(fixed) >= least
    schema = Draft202012Validator(schema_of(name))
    return [path for path in fixed if schema.is_valid(renamed(value, path))]


def test_a_field_by_another_name_is_refused(capsys):
    found = printed(capsys, "analyze", OWN[0], "--json", "--by", "op", "--top", 1)
    optional = [("ops",), ("efficiency",), ("headline",)]
    assert free("analysis", found, least=100) == optional
    assert [path for path in optional if not errors("analysis", renamed(found, path))] == []


def test_a_field_of_ranks_by_another_name_is_refused(job, capsys):
    before, after = job("before"), job("after", more=["gemm"])
    assert free("ranks", printed(capsys, "analyze", after, "--ranks", "--json"), least=40) == []
    differences = printed(capsys, "diff", before, after, "--ranks", "--json")
    assert free("diff", differences, least=20) == [("ranks", "0"), ("ranks", "1")]
