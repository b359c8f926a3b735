"""Every spelling of a trace file that torch or a tool has written is read to the same numbers."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builder import TraceBuilder, own_recording, write
from facts import says, why_unreadable
from fresh import run_code
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_torchprof import load
from pytest_torchprof.reasons.codes import Code
from pytest_torchprof.reasons.lost_work import UntimedKernels
from pytest_torchprof.reasons.unreadable import JsonInvalid
from pytest_torchprof.recording.reader import read
from pytest_torchprof.trace.metadata import Adoption

pytestmark = pytest.mark.any_torch


def two_steps(**kwargs):
    """Return two steps: one kernel each, a copy in the second, the profiler's flush."""
    builder = TraceBuilder(**kwargs)
    for number in (3, 4):
        at = (number - 3) * 100
        builder.step(number, at, 90)
        builder.launched("k_mul", at + 10, dur=7)
    builder.op("aten::copy_", 150, 20)
    builder.memcpy("DtoH", 160, 5, builder.call("copy", 152, 4), size=16)
    builder.sync(300, 40)
    builder.flows()
    return builder


def numbers(profile):
    return [step.numbers for step in profile.steps]


@pytest.fixture
def plain(tmp_path):
    return load(two_steps().write(tmp_path / "plain.json"))


def test_the_numbers_of_a_small_trace(plain):
    first, second = plain.steps
    assert (first.name, second.name) == ("ProfilerStep#3", "ProfilerStep#4")
    assert (len(first.kernels), first.launches, first.memcpys, first.syncs) == (1, 1, 0, 0)
    assert (len(second.kernels), second.memcpys_d2h, second.memcpy_bytes) == (1, 1, 16)
    assert (second.kernel_time_us, second.gpu_time_us, second.gpu_busy_us, second.gpu_span_us) == (7, 12, 12, 47)
    assert second.cpu_time_us == 90
    assert second.cpu_gpu_ratio == 90 / 12
    assert plain.trace.events == len(two_steps().events)


def test_gzip_is_read_as_plain(tmp_path, plain):
    packed = load(two_steps().write(tmp_path / "packed.json.gz"))
    assert numbers(packed) == numbers(plain)


def test_gzip_is_told_by_its_content_not_by_its_name(tmp_path, plain):
    file = two_steps().write(tmp_path / "packed.json.gz")
    assert numbers(load(file.rename(tmp_path / "packed.json"))) == numbers(plain)


def test_gzip_of_several_members_is_read_to_its_end(tmp_path, plain):
    text = two_steps().text().encode()
    half = write(tmp_path / "a.gz", text[:700]).read_bytes() + write(tmp_path / "b.gz", text[700:]).read_bytes()
    (tmp_path / "both.json.gz").write_bytes(half)
    assert numbers(load(tmp_path / "both.json.gz")) == numbers(plain)


def test_zlib_unpacks_where_there_is_no_igzip(tmp_path, plain):
    text = two_steps().text().encode()
    packed = write(tmp_path / "a.gz", text[:700]).read_bytes() + write(tmp_path / "b.gz", text[700:]).read_bytes()
    damaged = bytearray(packed)
    damaged[-6] ^= 1
    files = {"whole": packed, "cut off": packed[:-9], "damaged": damaged}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    done = run_code(
        "import sys; sys.modules['isal'] = None\n"
        "from pytest_torchprof import UnreadableRecording, load\n"
        "for path in sys.argv[1:]:\n"
        "    try: print(load(path).trace.events)\n"
        "    except UnreadableRecording as refused: print(refused.code)",
        *(str(tmp_path / name) for name in files),
    )
    assert done.stdout.split() == [str(plain.trace.events), Code.RECORDING_CUT_OFF, Code.RECORDING_DAMAGED]


def test_checksums_that_earlier_versions_wrote_are_passed_over(tmp_path):
    recording = own_recording({"k": 1})
    now = load(recording.write(tmp_path / "now.json"))
    recording.torchprof |= {"digest": [1, 2], "adopted": {"nodeid": "test_it.py::test_it", "digest": [3, 4]}}
    before = load(recording.write(tmp_path / "before.json"))
    assert before.trace.metadata == now.trace.metadata
    assert before.trace.adoption == Adoption(nodeid="test_it.py::test_it")
    assert numbers(before) == numbers(now)


@pytest.mark.parametrize("indent", [None, 0, 2, 4])
def test_indentation_does_not_matter(tmp_path, plain, indent):
    assert numbers(load(two_steps().write(tmp_path / "t.json", indent=indent))) == numbers(plain)


def test_the_order_of_keys_does_not_matter(tmp_path, plain):
    file = write(tmp_path / "t.json", json.dumps(two_steps().document(), sort_keys=True))
    assert numbers(load(file)) == numbers(plain)


def test_a_bare_list_of_events_is_a_trace(tmp_path, plain):
    assert numbers(load(write(tmp_path / "t.json", json.dumps(two_steps().events)))) == numbers(plain)


def old_spelling(events):
    """Return the events as torch 1.8 wrote them."""
    old = {
        "cpu_op": "Operator",
        "user_annotation": "Operator",
        "cuda_runtime": "Runtime",
        "kernel": "Kernel",
        "gpu_memcpy": "Memcpy",
    }
    for event in events:
        event["cat"] = old.get(event["cat"], event["cat"])
        event["tid"] = f"stream {event['tid']}" if event["cat"] in ("Kernel", "Memcpy") else str(event["tid"])
    return events


def test_the_oldest_categories_and_thread_ids_are_read(tmp_path, plain):
    old = load(write(tmp_path / "t.json", json.dumps(old_spelling(two_steps().events))))
    assert numbers(old) == numbers(plain)


def test_categories_in_any_case_are_read(tmp_path, plain):
    events = two_steps().events
    for event in events:
        event["cat"] = event["cat"].upper()
    assert numbers(load(write(tmp_path / "t.json", json.dumps(events)))) == numbers(plain)


def test_rocm_calls_under_cuda_categories_are_read(tmp_path, plain):
    rocm = load(two_steps(rocm=True).write(tmp_path / "t.json"))
    assert numbers(rocm) == numbers(plain)
    assert rocm.sm_efficiency is None
    assert rocm.achieved_occupancy is None
    assert plain.sm_efficiency is not None


def test_string_thread_ids_and_streams_are_read(tmp_path, plain):
    builder = two_steps()
    for event in builder.events:
        event["tid"] = str(event["tid"])
        if "stream" in event.get("args", {}):
            event["args"]["stream"] = str(event["args"]["stream"])
    profile = load(builder.write(tmp_path / "t.json"))
    assert numbers(profile) == numbers(plain)
    assert profile.kernels[0].stream == plain.kernels[0].stream == 7


def near(us):
    return st.integers(us * 1000 - 10_000, us * 1000 + 10_000)


def test_fractional_time_stamps_are_exact_to_the_nanosecond(tmp_path):
    builder = TraceBuilder(begin=0)
    builder.step(1, 7_889_237_999_999.003, 0.999)
    builder.launched("k", 7_889_237_999_999.004, dur=0.001, wait=0)
    trace = read(builder.write(tmp_path / "t.json"))
    assert trace.steps[0][1:3] == (7_889_237_999_999_003, 7_889_238_000_000_002)


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.integers(0, 10**16), st.sampled_from([2**42, 2**43]).flatmap(near)))
def test_every_nanosecond_is_read_as_it_is_written(moment):
    """kineto counts from the beginning of a quarter: to its end a double of microseconds tells nanoseconds just so."""
    builder = TraceBuilder(begin=0)
    builder.step(1, 0, 0.5)
    text = builder.text().replace('"ts": 0,', f'"ts": {moment // 1000}.{moment % 1000:03},')
    with TemporaryDirectory() as folder:
        (step,) = read(write(Path(folder) / "t.json", text)).steps
    assert (step.start_ns, step.end_ns) == (moment, moment + 500)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2**42 * 1000, 2**42 * 1500),
    st.one_of(st.integers(1000, 10**9), st.integers(2**35 * 1000, 2**41 * 1000 - 1000)),
)
def test_every_nanosecond_is_read_as_it_is_written_however_long_after_the_first(moment, after):
    builder = TraceBuilder(begin=0)
    builder.step(1, 0, 0.5)
    builder.step(2, 7, 0.5)
    text = builder.text()
    for us, ns in ((0, moment), (7, moment + after)):
        text = text.replace(f'"ts": {us},', f'"ts": {ns // 1000}.{ns % 1000:03},')
    with TemporaryDirectory() as folder:
        steps = read(write(Path(folder) / "t.json", text)).steps
    assert [step.start_ns for step in steps] == [moment, moment + after]


def test_fractional_time_stamps_are_rounded_not_cut(tmp_path):
    builder = TraceBuilder(begin=0)
    builder.step(1, 1.001, 0.999)
    assert 1.001 * 1000 < 1001
    assert read(builder.write(tmp_path / "t.json")).steps[0][1:3] == (1001, 2000)


def test_absolute_time_stamps_with_fractions_keep_what_a_double_loses(tmp_path):
    builder = TraceBuilder(begin=0)
    builder.step(1, 0, 90)
    builder.launched("k", 10)
    text = (
        builder.text()
        .replace('"ts": 0,', '"ts": 1712195495512345.003,')
        .replace('"ts": 10,', '"ts": 1712195495512345.102,')
    )
    trace = read(write(tmp_path / "t.json", text))
    assert trace.steps[0].start_ns == 1_712_195_495_512_345_003
    assert trace.ops.start == [1_712_195_495_512_345_102]


def test_whole_and_fractional_time_stamps_may_be_mixed(tmp_path, plain):
    builder = two_steps()
    builder.events[0]["ts"] = float(builder.events[0]["ts"])
    builder.events[1]["dur"] = 8.0
    assert numbers(load(builder.write(tmp_path / "t.json"))) == numbers(plain)


@pytest.mark.parametrize("moment", [0, 0x8000000000000000 / 1000, 0x8000000000000000])
def test_a_kernel_without_a_time_counts_and_makes_the_recording_unbelievable(tmp_path, moment):
    builder = two_steps(begin=1_700_000_000_000_000)
    next(event for event in builder.events if event["cat"] == "kernel")["ts"] = moment
    profile = load(builder.write(tmp_path / "t.json"))
    assert [step.numbers.kernels for step in profile.steps] == [1, 1]
    assert says(profile.doubt, UntimedKernels, operations=1)


@pytest.mark.parametrize("odd", ["inf", "-inf", "nan", "NaN", "Infinity", "-nan(ind)", "1.#INF", "0x1F", "01"])
def test_numbers_that_are_no_json_are_read_as_absent(tmp_path, plain, odd):
    text = two_steps().text().replace('"blocks per SM": 1.0', f'"blocks per SM": {odd}')
    assert odd in text
    profile = load(write(tmp_path / "t.json", text))
    assert numbers(profile) == numbers(plain)
    assert profile.sm_efficiency is None


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", ['load "m", x', '"', 'a", b, "c', "x\\\\"])
def test_quotation_marks_that_torch_left_in_names_are_part_of_them(tmp_path, name, indent):
    builder = two_steps()
    builder.annotation("QUOTED", 12, 5)
    text = builder.text(indent=indent).replace("QUOTED", name)
    profile = load(write(tmp_path / "t.json", text))
    assert len(profile.ranges(name.replace("\\\\", "\\"))) == 1
    assert profile.trace.events == load(builder.write(tmp_path / "plain.json")).trace.events


def test_what_looks_like_a_key_is_not_made_part_of_a_name(tmp_path):
    builder = two_steps()
    builder.annotation("QUOTED", 12, 5)
    text = builder.text().replace('"QUOTED"', '"a" "b": "c"')
    cause = why_unreadable(lambda: load(write(tmp_path / "t.json", text)))
    assert isinstance(cause, JsonInvalid)


def test_odd_numbers_in_lists_of_unknown_keys_do_not_kill_reading(tmp_path, plain):
    text = (
        two_steps()
        .text()
        .replace('"blocks per SM": 1.0', '"unknown": [inf, 1, "inf, }{ \\" nan"], "blocks per SM": 1.0')
    )
    profile = load(write(tmp_path / "t.json", text))
    assert numbers(profile) == numbers(plain)
    assert profile.sm_efficiency == plain.sm_efficiency


@pytest.mark.parametrize("odd", ["0", [], None, True], ids=["text", "list", "null", "true"])
def test_an_odd_field_of_a_kernel_leaves_the_shape_of_its_launch_as_it_was(tmp_path, odd):
    def shapes(correlation):
        builder = two_steps()
        launch = {"registers per thread": 32, "shared memory": 64, "grid": [2, 1, 1], "block": [128, 1, 1]}
        kernels = [event for event in builder.events if event["cat"] == "kernel"]
        for event in kernels:
            event["args"] |= launch
        kernels[0]["args"] |= correlation
        trace = load(builder.write(tmp_path / "t.json")).trace
        return [trace.shapes[number] for number in trace.gpu.shape]

    assert shapes({"graph node id": odd}) == shapes({})
    assert len(set(shapes({}))) == 1


@pytest.mark.parametrize(("written", "known"), [("16", 16), ("1.6e1", 16), ("many", None), ("9" * 400, None)])
def test_the_size_of_a_copy_may_be_a_text(tmp_path, written, known):
    builder = two_steps()
    (copy,) = (event for event in builder.events if event["cat"] == "gpu_memcpy")
    copy["args"]["bytes"] = written
    _, second = load(builder.write(tmp_path / "t.json")).steps
    assert (second.memcpys_d2h, second.memcpy_bytes) == (1, known)


def test_rocms_calls_that_copy_have_their_sizes_as_texts(tmp_path):
    builder = two_steps()
    for event in builder.events:
        if event["cat"] == "cuda_runtime":
            event["args"]["bytes"] = "16"
    done = run_code(
        "import sys\n"
        "from pytest_torchprof import load\n"
        "print(*(step.memcpy_bytes for step in load(sys.argv[1]).steps))\n"
        "print('pytest_torchprof.recording.oddities' in sys.modules)",
        str(builder.write(tmp_path / "t.json")),
    )
    # Nothing of the file is odd: its events are read by whole pieces.
    assert done.stdout.split() == ["0", "16", "False"]


def test_trailing_commas_do_not_kill_reading(tmp_path, plain):
    text = json.dumps(two_steps().document()).replace('], "traceName"', ',], "traceName"')
    assert numbers(load(write(tmp_path / "t.json", text))) == numbers(plain)


def test_events_of_other_producers_are_counted_as_events_only(tmp_path, plain):
    builder = two_steps()
    known = len(builder.events)
    builder.events += [
        {"ph": "X", "cat": "mtia_ccp_events", "name": "x", "pid": 0, "tid": 0, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "critical_path", "name": "x", "pid": 0, "tid": 0, "ts": 1, "dur": 1},
        {"ph": "C", "name": "counter", "pid": 0, "ts": 1, "args": {"value": 1}},
        {"ph": "i", "cat": "cpu_op", "name": "[memory]", "pid": 0, "tid": 0, "ts": 1, "s": "t"},
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#3", "pid": 0, "tid": 7, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cuda_sync", "name": "Context Sync", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {}},
        {"ph": "?", "surprise": True},
    ]
    profile = load(builder.write(tmp_path / "t.json"))
    assert numbers(profile) == numbers(plain)
    assert profile.trace.events == known + 8


def test_numbers_written_as_text_or_as_floats_are_numbers(tmp_path, plain):
    builder = two_steps()
    for event in builder.events:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = float(event["args"]["correlation"])
            event["ts"] = str(event["ts"])
    assert numbers(load(builder.write(tmp_path / "t.json"))) == numbers(plain)


def long_trace(count, **extra):
    """Return a trace that is read in several pieces, with names made to confuse whoever cuts it."""
    builder = TraceBuilder()
    builder.metadata.update(extra)
    confusing = ['}, {"ph": "X"', '},\n{"ph"', '], "traceEvents": [', "}{", "{,}", 'a "quoted" }, {']
    for i in range(count):
        builder.launched(
            f"kernel {confusing[i % len(confusing)]}", i * 20, op=f"aten::op{confusing[i % len(confusing)]}"
        )
    return builder


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_borders_of_events_are_not_mistaken_in_long_files(tmp_path, indent, suffix):
    builder = long_trace(3000)
    profile = load(builder.write(tmp_path / f"t.{suffix}", indent=indent))
    assert profile.trace.events == 9000
    assert len(profile.kernels) == profile.launches == 3000
    assert len(profile.kernels.names) == 6


def test_arrows_that_only_the_end_of_a_long_file_has_are_read_there(tmp_path):
    builder = long_trace(3000)
    builder.backward_of(0, 2999 * 20)
    arrows = load(builder.write(tmp_path / "t.json")).trace.arrows
    assert (len(arrows.starts), len(arrows.finishes)) == (1, 1)


def test_work_of_a_category_that_only_the_end_of_a_long_file_has_is_counted(tmp_path):
    builder = long_trace(3000)
    odd = {"ph": "X", "cat": "new_work", "name": "x", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"stream": 7}}
    builder.events.append(odd)
    assert load(builder.write(tmp_path / "t.json")).trace.unknown_work == {"new_work": 1}


def test_a_list_of_events_further_in_is_not_taken_for_the_file_s(tmp_path):
    builder = long_trace(2000)
    inner = {"meta": {"traceEvents": long_trace(2000).events}, **builder.document()}
    profile = load(write(tmp_path / "t.json", json.dumps(inner)))
    assert profile.trace.events == 6000
    assert set(profile.trace.header["meta"]) == {"traceEvents"}


def test_arguments_that_look_like_events_are_no_events(tmp_path):
    builder = long_trace(2000)
    lookalikes = json.loads(json.dumps(builder.events[:3]))
    for event in builder.events:
        event["args"]["list"] = lookalikes
    profile = load(builder.write(tmp_path / "t.json"))
    assert profile.trace.events == 6000
    assert len(profile.kernels) == 2000


def test_metadata_is_read_from_before_and_after_the_events(tmp_path):
    builder = long_trace(2000, before={"a": [1, 2]})
    document = {**builder.document(), "after": "text"}
    trace = read(write(tmp_path / "t.json", json.dumps(document)))
    assert trace.header["before"] == {"a": [1, 2]}
    assert trace.header["after"] == "text"
    assert trace.devices[0].name == "Test GPU"


def test_an_empty_list_of_events_is_a_trace_with_nothing_in_it(tmp_path):
    profile = load(write(tmp_path / "t.json", '{"traceEvents": []}'))
    assert (profile.trace.events, profile.launches, len(profile.kernels)) == (0, 0, 0)


def on_devices(tmp_path, *pids, rocm=False, listed=(), **own):
    builder = TraceBuilder(rocm=rocm)
    builder.metadata["deviceProperties"] = [{"id": i, "name": name, "numSms": 100} for i, name in enumerate(listed)]
    if own:
        builder.own(steps=1, sentinel_kernel=False, **own)
    for place, device in enumerate(pids):
        builder.launched("k", 100 * place, device=device)
    return load(builder.write(tmp_path / "t.json"))


def numbered(profile):
    return [(device.index, device.pid, device.name) for device in profile.trace.devices]


def test_a_cuda_device_has_the_ordinal_by_which_its_machine_lists_it(tmp_path):
    alone = on_devices(tmp_path, 1, listed=["NVIDIA T4", "NVIDIA H100"])
    assert numbered(alone) == [(1, 1, "NVIDIA H100")]
    assert [kernel.device for kernel in alone.kernels] == [1]
    assert list(alone.gpu_work.by_device) == [1]
    both = on_devices(tmp_path, 3, 0, listed=["NVIDIA T4", "NVIDIA H100", "NVIDIA L4", "NVIDIA H200"])
    assert numbered(both) == [(0, 0, "NVIDIA T4"), (3, 3, "NVIDIA H200")]
    assert [kernel.device for kernel in both.kernels] == [3, 0]


def test_devices_that_the_machine_does_not_list_are_numbered_by_the_order_of_their_process_ids(tmp_path):
    assert numbered(on_devices(tmp_path, 9, 2)) == [(0, 2, None), (1, 9, None)]
    assert numbered(on_devices(tmp_path, 9, 2, listed=["NVIDIA H100"])) == [
        (0, 2, "NVIDIA H100"),
        (1, 9, "NVIDIA H100"),
    ]


def test_a_rocm_device_has_no_ordinal_in_the_trace(tmp_path):
    """Its process id counts the machine's CPUs too, so it is none of the list's numbers even where it looks like one."""
    found = on_devices(tmp_path, 2, 1, rocm=True, listed=["AMD Instinct MI210", "AMD Radeon", "AMD Radeon"])
    assert numbered(found) == [(0, 1, None), (1, 2, None)]


def test_our_own_recordings_know_the_ordinals_of_rocm_devices(tmp_path):
    alone = on_devices(tmp_path, 3, rocm=True, listed=["AMD Instinct MI300X"] * 2, device="cuda:1", devices_used=[0, 1])
    assert numbered(alone) == [(1, 3, "AMD Instinct MI300X")]
    two = on_devices(tmp_path, 5, 3, rocm=True, device="cuda:1", devices_used=[1, 3])
    assert numbered(two) == [(1, 3, None), (3, 5, None)]
    unclear = on_devices(tmp_path, 5, 3, rocm=True, device="cuda:1", devices_used=[0, 1, 3])
    assert numbered(unclear) == [(0, 3, None), (1, 5, None)]


def test_a_folder_gives_a_list_in_order_of_names(tmp_path):
    (tmp_path / "run").mkdir()
    two_steps().write(tmp_path / "run" / "b.pt.trace.json")
    TraceBuilder().write(tmp_path / "run" / "a.pt.trace.json.gz")
    (tmp_path / "run" / "notes.txt").write_text("no trace")
    found = load(tmp_path / "run")
    assert [len(profile.steps) for profile in found] == [1, 2]


def test_a_head_longer_than_a_piece_is_read(tmp_path, plain):
    builder = two_steps()
    builder.metadata["notes"] = ['a "traceEvents" : [ ' * 20_000] * 2
    for suffix in ("json", "json.gz"):
        assert numbers(load(builder.write(tmp_path / f"long.{suffix}"))) == numbers(plain)


@pytest.mark.parametrize(("indent", "events"), [(None, 20_000), (1, 10_000)])
def test_a_long_file_takes_no_memory_for_its_text(tmp_path, indent, events):
    path = long_trace(events).write(tmp_path / "t.json", indent=indent)
    tracemalloc.start()
    try:
        read(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size
