"""Profile: what a test looks at."""

from __future__ import annotations

import pickle
import subprocess
import sys
from functools import partial

import pytest
from builder import TraceBuilder, own_recording
from facts import says, why_not, why_refused

import pytest_torchprof
from pytest_torchprof import NotMeasured, Profile, UnknownLimit, UnreadableRecording, load
from pytest_torchprof.reasons.composed import OfKeyword
from pytest_torchprof.reasons.names_asked import NoRangeOfName
from pytest_torchprof.reasons.recordings import NothingWasRun
from pytest_torchprof.reasons.wrong_values import ColumnOfOperators, ValueForm, WrongValue

pytestmark = pytest.mark.any_torch

BIAS = ([16], [1], "float")
MAT1 = ([64, 32], [32, 1], "float")
MAT2 = ([32, 16], [1, 32], "float")


@pytest.fixture
def profile(tmp_path):
    return lambda builder: load(builder.write(tmp_path / "t.json"))


def nested():
    """Return a step in which a linear layer launches a product, and a graph of Inductor's a Triton kernel."""
    builder = TraceBuilder()
    builder.step(1, 0, 1000)
    builder.annotation("forward", 5, 300)
    builder.annotation("MLP", 10, 100)
    builder.module("MLP_0", 10, 100)
    builder.op("aten::linear", 20, 60)
    builder.launched("ampere_sgemm_128x64_tn", 30, op="aten::addmm", inputs=[BIAS, MAT1, MAT2], dur=50)
    builder.region("0/0", 200, 60)
    builder.launched("triton_poi_fused_add_0", 210, op=None, dur=20)
    builder.launched("outside", 500, dur=5)
    return builder


def test_kernels_say_what_launched_them(profile):
    product, fused, outside = profile(nested()).kernels
    assert (product.op, product.op_chain) == ("aten::addmm", ("aten::linear", "aten::addmm"))
    assert product.op_dtypes == ("float",) * 3
    assert (product.op_shapes, product.op_strides) == (([16], [64, 32], [32, 16]), ([1], [32, 1], [1, 32]))
    assert (product.launch, product.device, product.stream, product.in_graph) == ("cudaLaunchKernel", 0, 7, False)
    assert product.duration_us == 50
    assert product.launch_start_ns == 1_000_032_000
    assert (fused.op, fused.op_chain) == (None, ("Torch-Compiled Region: 0/0",))
    assert (outside.op, outside.op_shapes) == ("aten::mul", None)
    assert product.family == "gemm"
    assert product.layout == "tn"


def test_a_launch_that_outlasts_an_operator_is_not_inside_it(profile):
    builder = TraceBuilder()
    builder.op("aten::outer", 0, 100)
    builder.op("aten::short", 10, 2)
    builder.kernel("k", 60, 5, builder.launch(11, 20))
    assert profile(builder).kernels[0].op == "aten::outer"


def test_kernels_are_a_sequence_in_launch_order(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    builder.kernel("second", 500, 10, builder.launch(200))
    builder.kernel("first", 600, 20, builder.launch(100))
    builder.kernel("first", 700, 5, builder.launch(300))
    kernels = profile(builder).kernels
    assert [kernel.name for kernel in kernels] == ["first", "second", "first"]
    assert (len(kernels), kernels.count, kernels.time_us) == (3, 3, 35)
    assert kernels.names == ["first", "second"]
    assert kernels[-1].dur_ns == 5000
    assert kernels[:2].names == ["first", "second"]
    assert kernels[:2].count == 2
    assert repr(kernels) == "<Kernels: 3 of 2 names, 35.0 us>"
    assert str(kernels).split("\n") == [
        "<Kernels: 3 of 2 names, 35.0 us>",
        "  [0] first, 20.0 us",
        "  [1] second, 10.0 us",
        "  [2] first, 5.00 us",
    ]


def test_kernels_are_matched_by_patterns(profile):
    kernels = profile(nested()).kernels
    assert kernels.matching("triton_*").count == 1
    assert kernels.matching("_tn").names == ["ampere_sgemm_128x64_tn"]
    assert kernels.matching("nothing").count == 0
    assert kernels.matching("nothing").time_us == 0
    with pytest.raises(UnknownLimit):
        kernels.matching(7)


def test_kernels_and_operators_are_of_the_step_that_has_most(profile):
    builder = TraceBuilder()
    for number, count in enumerate((1, 2, 2)):
        builder.step(number, number * 1000, 900)
        for place in range(count):
            builder.launched(f"k{number}{place}", number * 1000 + 20 * place, op=f"aten::op{number}")
    found = profile(builder)
    assert found.kernels.names == ["k10", "k11"]
    assert dict(found.ops) == {"aten::op1": 2}
    assert [dict(step.ops) for step in found.steps] == [{"aten::op0": 1}, {"aten::op1": 2}, {"aten::op2": 2}]


def test_operators_are_those_that_launch_kernels_and_those_around(profile):
    builder = nested()
    builder.op("aten::view", 600, 10)
    builder.op("aten::copy_", 700, 10)
    builder.memcpy("HtoD", 720, 1, builder.call("copy", 702))
    assert dict(profile(builder).ops) == {
        "aten::linear": 1,
        "aten::addmm": 1,
        "Torch-Compiled Region: 0/0": 1,
        "aten::mul": 1,
    }


def test_a_range_has_the_numbers_of_what_was_launched_inside(profile):
    found = profile(nested())
    inner, outer = found.range("MLP"), found.range("forward")
    assert (inner.kernels, inner.launches, inner.kernel_time_us, inner.cpu_time_us) == (1, 1, 50, 100)
    assert (outer.kernels, outer.launches, outer.kernel_time_us) == (2, 2, 70)


def test_a_range_that_is_called_twice_in_a_step_counts_both(profile):
    builder = TraceBuilder()
    builder.step(0, 0, 900)
    for at in (100, 300):
        builder.annotation("block", at, 50)
        builder.launched("k", at + 10)
    builder.launched("k", 500)
    found = profile(builder).range("block")
    assert (found.kernels, found.cpu_time_us) == (2, 100)


def test_a_range_over_several_steps_is_its_worst(profile):
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, number * 1000, 900)
        builder.annotation("block", number * 1000, 500)
        for place in range(number):
            builder.launched("k", number * 1000 + 10 + 20 * place)
    assert profile(builder).range("block").kernels == 2


def test_an_unknown_range_is_an_error_that_names_the_users_ranges(profile):
    reason = why_not(lambda: profile(nested()).range("mlp"))
    assert says(reason, NoRangeOfName, name="mlp")
    assert {"MLP", "forward"} <= set(reason.there)
    assert says(why_not(lambda: profile(nested()).range("forwards")), NoRangeOfName, near="forward")
    assert says(why_not(lambda: profile(TraceBuilder()).range("mlp")), NoRangeOfName, there=())


@pytest.mark.parametrize("name", ["décode", "解码"])
def test_a_name_that_torch_does_not_record_says_so(profile, name):
    told, of_ascii = (why_not(partial(profile(nested()).range, asked)) for asked in (name, "decode"))
    assert (type(told), told.name) == (NoRangeOfName, name)
    assert '"unknown"' in told.text
    assert '"unknown"' not in of_ascii.text


class TestGate:
    LOOKS = (
        *("steps", "kernels", "ops", "findings", "compile", "worst", "median", "result"),
        *("launches", "gpu_busy_us", "gpu_utilization", "graph_breaks", "peak_memory_bytes"),
    )

    @pytest.fixture
    def looked(self):
        return []

    @pytest.fixture
    def gated(self, profile, looked):
        def gate(name):
            looked.append(name)
            raise KeyError(name)

        return Profile.from_trace(profile(nested()).trace, result=7, gate=gate)

    @pytest.mark.parametrize("name", LOOKS)
    def test_every_look_goes_through_it(self, gated, looked, name):
        with pytest.raises(KeyError):
            getattr(gated, name)
        assert looked[0] == name

    @pytest.mark.parametrize(
        ("name", "call"),
        [
            ("table", lambda profile: profile.table()),
            ("range", lambda profile: profile.range("MLP")),
            ("expect", lambda profile: profile.expect(max_kernels=1)),
            ("diff", lambda profile: profile.diff(profile)),
            ("save", lambda profile: profile.save("nowhere.json")),
        ],
    )
    def test_every_call_goes_through_it(self, gated, looked, name, call):
        with pytest.raises(KeyError):
            call(gated)
        assert looked == [name]

    def test_what_says_whether_it_was_measured_does_not(self, gated, looked):
        assert (gated.measured, gated.why_not, gated.trace.events) == (True, None, len(nested().events))
        assert looked == []

    def test_a_profile_without_one_shows_everything(self, gated):
        opened = gated.with_context(rules=None, gate=None)
        assert (opened.launches, opened.result) == (3, 7)

    def test_nothing_was_measured(self, looked):
        nothing = Profile.unmeasured(gate=looked.append)
        with pytest.raises(NotMeasured):
            nothing.launches  # noqa: B018
        assert looked[0] == "launches"


def test_the_result_is_what_the_measured_call_returned(profile):
    found = profile(nested())
    assert says(why_not(lambda: found.result), NothingWasRun)
    assert found.with_result(None).result is None


def test_saving_packs_by_name_and_loads_back(profile, tmp_path):
    found = profile(own_recording({"a": 1}))
    found.save(tmp_path / "packed.json.gz")
    found.save(tmp_path / "plain.json")
    assert (tmp_path / "packed.json.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert (tmp_path / "plain.json").read_bytes() == (tmp_path / "t.json").read_bytes()
    for name in ("packed.json.gz", "plain.json"):
        again = load(tmp_path / name)
        assert [step.numbers for step in again.steps] == [step.numbers for step in found.steps]
        assert again.trace.metadata == found.trace.metadata


def test_saving_where_there_is_no_folder_is_an_error_and_leaves_nothing(profile, tmp_path):
    with pytest.raises(UnreadableRecording, match="cannot be saved"):
        profile(nested()).save(tmp_path / "missing" / "t.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_saving_a_recording_that_is_gone_is_an_error(profile, tmp_path):
    found = profile(nested())
    (tmp_path / "t.json").unlink()
    with pytest.raises(UnreadableRecording, match=r"t.json is gone: .* Call save\(\) "):
        found.save(tmp_path / "other.json")
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_pickled_with_its_recording_and_without_the_result(profile, tmp_path):
    found = profile(own_recording({"a": 2})).with_result([1])
    assert found.kernels.count == 2
    (tmp_path / "t.json").unlink()
    again = pickle.loads(pickle.dumps(found))
    assert (again.kernels.names, again.median) == (["a"], found.median)
    assert says(why_not(lambda: again.result), NothingWasRun)


def test_a_profile_that_may_not_be_looked_at_is_not_pickled_either(profile):
    def gate(name):
        raise NotMeasured(f"not {name}")

    found = profile(own_recording({"a": 2})).with_context(rules=None, gate=gate)
    with pytest.raises(NotMeasured, match="not pickle"):
        pickle.dumps(found)


class TestTable:
    def test_it_names_kernels_and_operators(self, profile):
        table = profile(nested()).table()
        assert "sgemm_128x64" in table
        assert "aten::addmm" in table

    @pytest.mark.parametrize(
        ("by", "words"),
        [
            ("family", ["family", "gemm"]),
            ("op", ["aten::linear", "CUDA", "Calls"]),
            ("range", ["MLP", "forward"]),
            ("module", ["MLP_0"]),
        ],
    )
    def test_ways_to_group(self, profile, by, words):
        table = profile(nested()).table(by=by)
        assert all(word in table for word in words)

    @pytest.mark.parametrize(
        ("sort_by", "first"),
        [
            ("cuda_time_total", "aten::linear"),
            ("self_device_time_total", "aten::addmm"),
            ("cpu_time_total", "aten::linear"),
            ("count", "aten::many"),
            ("cpu_time", "aten::linear"),
            ("self_cuda_memory_usage", "aten::addmm"),
        ],
    )
    def test_it_sorts_as_key_averages_does(self, profile, sort_by, first):
        builder = nested()
        for at in (700, 710, 720):
            builder.op("aten::many", at, 1)
        builder.allocation(2**20, 36)
        builder.allocation(-(2**20), 711)
        rows = profile(builder).table(by="op", sort_by=sort_by).splitlines()
        line = next(number for number, row in enumerate(rows) if row.startswith("---"))
        assert rows[line + 1].split()[0] == first

    def test_a_column_that_only_operators_have_is_refused_elsewhere(self, profile):
        why = why_refused(lambda: profile(nested()).table(by="range", sort_by="cpu_memory_usage"))
        assert says(why, ColumnOfOperators, column="cpu_memory_usage")

    @pytest.mark.parametrize(("keyword", "there"), [("by", "range"), ("sort_by", "cuda_time_total")])
    def test_unknown_ways_and_columns_are_refused(self, profile, keyword, there):
        why = why_refused(lambda: profile(nested()).table(**{keyword: "colour"}))
        assert says(why, OfKeyword, keyword=keyword, value="'colour'")
        assert there in why.why.known

    @pytest.mark.parametrize("top", [-1, "all"])
    def test_a_number_of_rows_that_is_none_is_refused(self, profile, top):
        why = why_refused(lambda: profile(nested()).table(top=top))
        assert says(why, OfKeyword, keyword="top", value=repr(top))
        assert says(why, WrongValue, expected=ValueForm.WHOLE_NUMBER, least=0)

    def test_modules_need_stacks(self, profile):
        assert "with_stack=True" in profile(own_recording({"a": 1})).table(by="module")


def test_the_public_names_are_these_and_load_when_used():
    assert {"Profile", "load", "LimitsMissed", "gemm"} <= set(dir(pytest_torchprof))
    for name in dir(pytest_torchprof):
        assert getattr(pytest_torchprof, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        pytest_torchprof.lode  # noqa: B018


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import pytest_torchprof", ["msgspec", "torch", "pytest", "pytest_torchprof.profiles"]),
        ("from pytest_torchprof import load", ["torch", "pytest", "numpy", "argparse"]),
        ("import pytest_torchprof.cli", ["torch", "pytest", "numpy", "msgspec"]),
    ],
)
def test_imports_bring_no_more_than_they_need(code, absent):
    script = f"import sys; {code}; print([name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_printed_a_kernel_says_what_it_is_how_long_it_ran_and_what_launched_it(profile):
    kernel = profile(nested()).kernels[0]
    assert str(kernel) == "gemm fp32 tn ampere_sgemm_128x64, 50.0 us, aten::addmm"


def test_dir_shows_what_a_person_looks_for(profile):
    names = dir(profile(nested()))
    assert {"kernels", "table", "range", "steps", "findings", "expect", "save", "trace"} <= set(names)
    assert [name for name in names if name.startswith(("_", "with_", "unmeasured"))] == []
