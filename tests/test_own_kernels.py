"""Kernels that no table knows: what a limit says of them, and the ways to say once what they are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from builder import TraceBuilder, own_recording
from facts import says, why_not, why_refused

from pytest_torchprof import LimitsMissed, NotMeasured, communication, conv, family, gemm, library, load
from pytest_torchprof import profile as measured
from pytest_torchprof.cli import main
from pytest_torchprof.kernels.own_kernels import read_own_kernels
from pytest_torchprof.limits.seen import ForbiddenMatches
from pytest_torchprof.reasons.composed import OfEntry
from pytest_torchprof.reasons.limits import FamilyUnknown
from pytest_torchprof.reasons.wrong_patterns import (
    NoExpression,
    NoPattern,
    NoPatternOfOwn,
    NotOnesOwn,
    NotSpelledSo,
    PartOf,
    PatternForm,
    SaysTwice,
    Spelling,
    UnknownPart,
)

pytestmark = pytest.mark.any_torch

MARKED = """
from pytest_torchprof import gemm, family

@torch.library.custom_op("mine::rope", mutates_args=())
def rope(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)

@pytest.mark.torchprof(device="cpu", warmup=0, steps=1, {limits})
def test_rope(torchprof):
    profile = torchprof(rope, x)
    {body}
"""
FORBIDDEN = MARKED.format(limits="forbid_kernels=gemm()", body="profile.expect(forbid_kernels=gemm())")
ALONE = MARKED.format(limits="forbid_kernels=gemm(), baseline=False", body="pass")
INI = "[pytest]\ntorchprof_kernels =\n    {line}\n"


def test_a_kernel_of_no_known_family_may_be_a_product_and_the_line_to_paste_is_told(run_tests, pytester):
    result = run_tests(ALONE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*gemm()*not measured*",
            "*mine::rope*",
            "*ini file (*",
            "*torchprof_kernels =*",
            "* mine::rope = *",
        ]
    )
    pytester.makeini(INI.format(line="mine::rope = pointwise"))
    run_tests(ALONE).assert_outcomes(passed=1)


def test_the_ini_file_says_it_for_all_tests_and_for_what_a_body_expects(run_tests, pytester):
    pytester.makeini(INI.format(line="mine::* = pointwise"))
    run_tests(FORBIDDEN).assert_outcomes(passed=1)
    pytester.makeini(INI.format(line="mine::* = gemm fp32"))
    result = run_tests(FORBIDDEN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*{ForbiddenMatches(1, 'kernel', 'gemm()')}*"])


def test_the_marker_says_it_for_one_test_and_is_asked_before_the_ini_file(run_tests, pytester):
    pytester.makeini(INI.format(line="mine::* = gemm"))
    run_tests(FORBIDDEN).assert_outcomes(failed=1)
    limits = "forbid_kernels=gemm(), own_kernels={'mine::rope': 'pointwise'}"
    run_tests(MARKED.format(limits=limits, body="assert profile.kernels[0].family == 'pointwise'")).assert_outcomes(
        passed=1
    )


def test_a_plugin_says_it_for_a_library(run_tests, pytester):
    hook = "def pytest_torchprof_kernels():\n    return {'mine::rope': 'pointwise'}\n"
    pytester.makeconftest(hook)
    run_tests(FORBIDDEN).assert_outcomes(passed=1)
    pytester.makeconftest(hook.replace("pointwise", "pointwize"))
    result = run_tests(FORBIDDEN)
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*pytest_torchprof_kernels: 'mine::rope': 'pointwize' is no family*'pointwise'*"])


def test_a_replay_judges_by_it_too(run_tests, pytester):
    run_tests(ALONE, "--torchprof-save=kept").assert_outcomes(failed=1)
    run_tests(ALONE, "--torchprof-replay=kept").assert_outcomes(failed=1)
    pytester.makeini(INI.format(line="mine::rope = pointwise"))
    run_tests(ALONE, "--torchprof-replay=kept").assert_outcomes(passed=1)


def test_workers_of_xdist_judge_by_it_too(run_tests, pytester):
    pytest.importorskip("xdist")
    pytester.makeini(INI.format(line="mine::rope = pointwise"))
    run_tests(ALONE, "-n1").assert_outcomes(passed=1)


def test_a_baseline_tells_declared_products_apart_by_their_structure(run_tests, pytester):
    pytester.makeini(INI.format(line="mine::rope = gemm fp32 tn"))
    source = MARKED.format(limits="min_kernels=1", body="pass")
    run_tests(source, "--torchprof-baseline=add").assert_outcomes(passed=1)
    (file,) = Path(pytester.path, "__torchprof__").glob("*.json")
    (entry,) = json.loads(file.read_text(encoding="utf-8"))["entries"].values()
    kernel = entry["steps"][0][0]
    assert (kernel["family"], kernel["dtype"], kernel["layout"]) == ("gemm", "fp32", "tn")
    run_tests(source, "--torchprof-baseline=strict").assert_outcomes(passed=1)


def test_an_entry_that_calls_it_other_or_pointwise_is_compared_as_the_same(run_tests, pytester):
    source = MARKED.format(limits="min_kernels=1", body="pass")
    run_tests(source, "--torchprof-baseline=add").assert_outcomes(passed=1)
    (file,) = Path(pytester.path, "__torchprof__").glob("*.json")
    text = file.read_text(encoding="utf-8")
    assert '"family"' not in text
    for former in ("other", "pointwise"):
        file.write_text(re.sub(r'{(?=[^{}]*"op": "mine)', f'{{"family": "{former}", ', text), encoding="utf-8")
        assert former in file.read_text(encoding="utf-8")
        result = run_tests(source, "--torchprof-baseline=strict")
        result.assert_outcomes(passed=1)
        result.stdout.no_fnmatch_line("*changed*")


def of_own_operator(folder, *names):
    """Return a recording of a step whose kernels an operator of the user's launches."""
    builder = TraceBuilder()
    builder.own(steps=1)
    builder.step(0, 0, 900)
    for place, name in enumerate(names):
        builder.launched(name, 10 + 20 * place, op="mine::rope")
    builder.sync(950, 20)
    return builder.write(folder / "a.json")


def judged(recording, *words):
    return main(["check", str(recording), *(word for limit in words for word in ("--limit", limit))])


def test_check_takes_it_beside_the_limits(tmp_path, capsys):
    recording = of_own_operator(tmp_path, "fwd_of_mine")
    assert judged(recording, "forbid_kernels=gemm()") == 3
    assert "fwd_of_mine = pointwise" in capsys.readouterr().out
    assert judged(recording, "forbid_kernels=gemm()", 'own_kernels={"fwd_*": "pointwise"}') == 0
    assert judged(recording, "forbid_kernels=gemm()", 'own_kernels={"fwd_*": "gemm bf16"}') == 1
    assert judged(recording, "forbid_kernels=gemm()", 'own_kernels={"fwd_*": "gem"}') == 2
    assert "'gem' is no family" in capsys.readouterr().err


def test_expect_takes_it_of_a_recording_that_was_loaded(tmp_path):
    profile = load(of_own_operator(tmp_path, "fwd_of_mine"))
    with pytest.raises(NotMeasured, match="fwd_of_mine = pointwise"):
        profile.expect(only_kernels=family("pointwise"))
    profile.expect(only_kernels=family("pointwise"), own_kernels={"fwd_*": "pointwise"})
    with pytest.raises(LimitsMissed):
        profile.expect(forbid_kernels=gemm(dtype="bf16"), own_kernels={"fwd_*": "gemm bf16"})
    assert profile.kernels[0].family is None


def test_it_decides_only_where_nothing_else_is_known(tmp_path):
    product, elementwise = "volta_sgemm_128x64_nn", "void at::native::vectorized_elementwise_kernel"
    profile = load(of_own_operator(tmp_path, product, elementwise, "mine"))
    declared = dict.fromkeys(("volta_sgemm_*", "*elementwise*", "mine"), "gemm bf16")
    told = profile.with_own_kernels(read_own_kernels(declared)).kernels
    families = {kernel.name: (kernel.family, kernel.dtype) for kernel in told}
    assert families == {product: ("gemm", "fp32"), elementwise: (None, None), "mine": ("gemm", "bf16")}


CATCH_ALLS = ["re:", "re:.*", "re:.", "re:^", "re:[a-z_]+", "re:|foo", "re:foo|.*", "_", "::", "e", "*e*", "void *"]
CATCH_ALLS += ["re:kernel", "*kernel*", "*_*_*", "at::*", "..."]


@pytest.mark.parametrize(
    ("given", "kind", "facts"),
    [
        ({"mine_*": "pointwize"}, UnknownPart, {"what": PartOf.FAMILY, "name": "'pointwize'", "near": "pointwise"}),
        ({"mine_*": "pointwize"}, OfEntry, {"entry": "'mine_*'"}),
        ({"mine_*": "gemm bf61"}, UnknownPart, {"what": PartOf.FACT, "name": "'bf61'", "of": "gemm"}),
        ({"mine_*": "pointwise tn"}, UnknownPart, {"what": PartOf.FACT, "name": "'tn'", "of": "pointwise"}),
        ({"mine_*": "gemm gemm"}, UnknownPart, {"what": PartOf.FACT, "name": "'gemm'"}),
        ({"mine_*": ""}, NoPattern, {"expected": PatternForm.COMPUTED, "got": "''"}),
        ({"": "gemm"}, NoPatternOfOwn, {"pattern": "''", "why_not": NotOnesOwn.EMPTY}),
        ({"*": "gemm"}, NoPatternOfOwn, {"pattern": "'*'", "why_not": NotOnesOwn.TOO_SHORT}),
        ({"re:(": "gemm"}, NoExpression, {"written": "re:("}),
        ({3: "gemm"}, NoPatternOfOwn, {"pattern": "3", "why_not": NotOnesOwn.EMPTY}),
        ("mine_*", NoPattern, {"expected": PatternForm.OWN_KERNELS, "got": "'mine_*'"}),
        ({"fused_mlp": "gemm fp32 bf16"}, SaysTwice, {"written": "'gemm fp32 bf16'"}),
        ({"fused_mlp": "gemm tn nn"}, SaysTwice, {"written": "'gemm tn nn'"}),
        ({"fused_mlp, my_rope": "gemm"}, NotSpelledSo, {"how": Spelling.SEVERAL, "names": ("fused_mlp", "my_rope")}),
        ({"'fused_mlp'": "gemm"}, NotSpelledSo, {"how": Spelling.QUOTED, "names": ("fused_mlp",)}),
    ],
)
def test_what_declares_nothing_is_refused(given, kind, facts):
    assert says(why_refused(lambda: read_own_kernels(given)), kind, **facts)


@pytest.mark.parametrize("pattern", CATCH_ALLS)
def test_a_pattern_that_would_match_whatever_runs_is_refused(pattern):
    why = why_refused(lambda: read_own_kernels({pattern: "gemm"}))
    assert repr(pattern) in str(why)
    assert why.code == "bad-pattern"


def test_a_bad_line_of_the_ini_file_is_refused_at_the_start(run_tests, pytester):
    for line, said in (
        ("my_rope = pointwize", "'pointwize' is no family*'pointwise'"),
        ("my_rope pointwise", "expected PATTERN"),
        ("= pointwise", "'' is no pattern"),
        ("olib::thing = pointwise = gemm", "expected PATTERN = FAMILY"),
    ):
        pytester.makeini(INI.format(line=line))
        result = run_tests(ALONE)
        assert result.ret == 4
        result.stderr.fnmatch_lines([f"*torchprof_kernels: *{said}*"])


def test_an_elementwise_kernel_is_no_product_whatever_it_computes(tmp_path):
    unheard_of = "void at::native::vectorized_elementwise_kernel<4, at::native::OfTomorrow<float>>(int)"
    found = load(of_own_operator(tmp_path, unheard_of))
    found.expect(forbid_kernels=[gemm(), family("attention")], collectives={"all_reduce": 0})


def test_what_an_operator_of_atens_launches_is_no_product_unless_that_is_one(tmp_path):
    found = load(own_recording({"of_a_new_library": 2}).write(tmp_path / "a.json"))
    assert found.kernels[0].op == "aten::mul"
    found.expect(forbid_kernels=gemm())
    with pytest.raises(NotMeasured):
        found.expect(forbid_kernels=family("reduction"))


def test_json_has_null_and_tables_a_word(tmp_path, capsys):
    recording = of_own_operator(tmp_path, "fwd_of_mine", "volta_sgemm_128x64_nn")
    assert main(["analyze", str(recording), "--json", "--by", "family"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["family"] for row in told["families"]} == {"gemm", None}
    assert {row["name"]: row["family"] for row in told["kernels"]}["fwd_of_mine"] is None
    assert main(["analyze", str(recording), "--by", "family"]) == 0
    assert "not known" in capsys.readouterr().out
    assert "fwd_of_mine" in load(recording).table(by="kernel")
    assert "not known" in load(recording).table(by="family")
    page = tmp_path / "page.html"
    assert main(["report", str(recording), "-o", str(page)]) == 0


def test_of_a_job_each_rank_is_judged_by_it(tmp_path):
    (folder := tmp_path / "ranks").mkdir()
    for rank in range(2):
        builder = TraceBuilder()
        builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_count": 1}
        builder.step(0, 0, 900)
        builder.launched("fwd_of_mine", 10, op="mine::rope")
        builder.sync(950, 20)
        builder.write(folder / f"rank{rank}.json")
    words = ["check", str(folder), "--ranks", "--limit", "forbid_kernels=gemm()"]
    assert main(words) == 3
    assert main([*words, "--limit", 'own_kernels={"fwd_*": "pointwise"}']) == 0


def test_ranks_that_pytest_starts_judge_by_it_too(run_tests, pytester):
    source = MARKED.format(limits="ranks=2, forbid_kernels=gemm(), baseline=False", body="pass")
    pytester.makeini(INI.format(line="mine::rope = pointwise"))
    run_tests(source, in_process=False).assert_outcomes(passed=1)


def test_measurements_of_scripts_take_it_beside_their_limits():
    @torch.library.custom_op("own_kernels::scripted", mutates_args=())
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    once = {"device": "cpu", "warmup": 0, "steps": 1, "forbid_kernels": gemm()}
    with pytest.raises(NotMeasured, match="own_kernels::scripted = "):
        measured(scripted, torch.ones(4), **once)
    found = measured(scripted, torch.ones(4), **once, own_kernels={"own_kernels::*": "pointwise"})
    assert found.kernels[0].family == "pointwise"


TEMPLATE = "void my_ns::(anonymous namespace)::fused_mlp<float, 128>(float*)"


@pytest.mark.parametrize(
    "pattern",
    [
        "fused_mlp*",
        "my_ns::fused_mlp",
        "my_ns::fused_*",
        "void my_ns::*fused_mlp<float, 128>*",
        "my_ns::...fused_mlp<float",
        "re:fused_mlp$",
        " fused_mlp ",
    ],
)
def test_a_pattern_finds_the_functions_own_name_and_what_forbid_kernels_finds(tmp_path, pattern):
    found = load(of_own_operator(tmp_path, TEMPLATE)).with_own_kernels(read_own_kernels({pattern: "gemm"}))
    assert found.kernels[0].family == "gemm"


def test_a_pattern_finds_an_operator_without_its_namespace(run_tests, pytester):
    pytester.makeini(INI.format(line="rope* = pointwise"))
    run_tests(ALONE).assert_outcomes(passed=1)


def test_what_is_declared_wins_over_what_words_say_and_not_over_a_grammar(tmp_path):
    by_words = ["my_matmul_kernel", "fused_allreduce_gemm", "my_allreduce", "embed_lookup_gelu_kernel"]
    product = "volta_sgemm_128x64_nn"
    profile = load(of_own_operator(tmp_path, *by_words, product))
    assert profile.kernels[0].family == "gemm"
    told = profile.with_own_kernels(read_own_kernels(dict.fromkeys([*by_words, product], "sort"))).kernels
    assert {kernel.name: kernel.family for kernel in told} == {**dict.fromkeys(by_words, "sort"), product: "gemm"}
    assert not any(kernel.collective for kernel in told)


def test_a_kernel_of_ones_own_is_of_no_library(tmp_path):
    profile = load(of_own_operator(tmp_path, "fused_mlp"))
    for asked in (library("cublas"), gemm(library="cublas")):
        with pytest.raises(NotMeasured):
            profile.expect(forbid_kernels=asked)
        profile.expect(forbid_kernels=asked, own_kernels={"fused_mlp": "gemm"})


@pytest.mark.parametrize("limits", [{"forbid_kernels": gemm()}, {"max_comm_bytes": 0}])
def test_a_declaration_that_matches_nothing_is_named(tmp_path, limits):
    declared = {"fused_mpl*": "pointwise", "rope_fwd": "pointwise"}
    with pytest.raises(NotMeasured) as raised:
        load(of_own_operator(tmp_path, "fused_mlp", "rope_fwd")).expect(**limits, own_kernels=declared)
    assert "here: 'fused_mpl*'" in str(raised.value)
    assert "here: 'rope_fwd'" not in str(raised.value)


def test_on_the_cpu_an_operator_is_no_communication_beside_the_collectives_that_are_recorded():
    @torch.library.custom_op("own_kernels::silent", mutates_args=())
    def silent(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    found = measured(silent, torch.ones(4), device="cpu", warmup=0, steps=1)
    found.expect(collectives={"all_reduce": 0}, max_comm_bytes=0, forbid_kernels=communication())
    with pytest.raises(NotMeasured):
        found.expect(forbid_kernels=conv())


def test_a_kernel_that_nobody_knows_may_change_layouts(tmp_path):
    found = load(of_own_operator(tmp_path, "my_nchw_to_nhwc"))
    why = why_not(lambda: found.expect(forbid=["layout-conversion"]))
    assert says(why, FamilyUnknown, family="copy", surely=True)
    found.expect(forbid=["layout-conversion"], own_kernels={"my_nchw_to_nhwc": "pointwise"})
