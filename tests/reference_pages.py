"""The pages of the reference that say what tables in the code hold: ``python tests/reference_pages.py`` writes them anew."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import TYPE_CHECKING

from _pytest.config import get_config
from msgspec import Struct

from pytest_torchprof.analysis.numbers import TABLE
from pytest_torchprof.cli import COMMANDS, parser_of
from pytest_torchprof.cli.schema import SCHEMAS
from pytest_torchprof.report import reporters
from pytest_torchprof.text import plural
from pytest_torchprof.trace import caches, captured_graphs, compile_evidence, metadata

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_torchprof.analysis.numbers import Number

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_MADE = "<!-- Made by tests/reference_pages.py from the tables in the code. -->\n"
_SUFFIXES = {
    ".json": "for scripts: everything, by the schema `report`",
    ".md": "for people: a table, and what failed",
    ".html": "for people: one page that opens anywhere, see [the report](report.md)",
    ".jsonl": "for a history, run after run: an object for each measurement",
    ".csv": "the same, as a table",
    ".benchmark.json": "github-action-benchmark, `customSmallerIsBetter`",
    ".bmf.json": "Bencher Metric Format",
    ".pytorch.json": "PyTorch's benchmark database, version 3",
}


def options() -> str:
    """Return the options of pytest, the keys of the ini file and the commands."""
    config = get_config()
    config.pluginmanager.import_plugin("pytest_torchprof.plugin")
    parser = config._parser
    ours = [option for group in parser._groups for option in group.options if "torchprof" in option.names()[0]]
    given = [
        (_cell(f"`{option.names()[0]}{_metavar(option.attrs())}`"), _cell(option.attrs()["help"])) for option in ours
    ]
    keys = [(f"`{name}`", _cell(told[0])) for name, told in parser._inidict.items() if name.startswith("torchprof")]
    reports = [(f"`{suffix}`", _SUFFIXES[suffix]) for suffix in reporters()]
    commands = [line for name in COMMANDS for line in _command(name)]
    return "\n".join(
        [
            "# Options and commands\n",
            _MADE,
            "The keywords of a test's marker are on the page of [limits](limits.md).\n",
            "## Options of pytest\n",
            *_table(("option", ""), given),
            "",
            "## Keys of the ini file\n",
            "In `pytest.ini`, `tox.ini` or `pyproject.toml` (`[tool.pytest.ini_options]`). Options on the command line win.\n",
            *_table(("key", ""), keys),
            "",
            "## Reports\n",
            "The form of `--torchprof-report=FILE` follows from the end of the file's name.\n",
            *_table(("name", "what it is for"), reports),
            "",
            "## Commands\n",
            "Each says with `-h` or `--help` what it takes. A shell completes them once `argcomplete` is installed and its start-up file has",
            '`eval "$(register-python-argcomplete torchprof)"`.\n',
            *commands,
        ]
    )


def _command(name: str) -> Iterator[str]:
    """Yield the lines of a command's section, and those of its own commands."""
    own = commands_of(parser_of(name))[name]
    yield from _arguments(name, own, "###")
    for inner, parser in commands_of(own).items():
        yield from _arguments(f"{name} {inner}", parser, "####")


def commands_of(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """Return the parsers of the commands that a parser knows, by their names."""
    return next((dict(action.choices) for action in parser._actions if isinstance(action.choices, dict)), {})


def _arguments(name: str, parser: ArgumentParser, level: str) -> Iterator[str]:
    """Yield the lines that say what a parser takes, without its --help."""
    yield f"{level} {name}\n"
    yield f"{parser.description}\n"
    taken = [action for action in parser._actions if not isinstance(action.choices, dict) and action.dest != "help"]
    if taken:
        yield from _table(("argument", ""), [(_cell(f"`{_written(action)}`"), _cell(action.help)) for action in taken])
        yield ""
    if parser.epilog is not None:
        yield f"```\n{parser.epilog}\n```\n"


def _written(action: Action) -> str:
    """Return an argument as it is written on the command line."""
    value = action.metavar or "|".join(action.choices or ())
    return ", ".join(f"{option} {value}".strip() for option in action.option_strings) or value


def _metavar(attributes: dict[str, object]) -> str:
    return f"={attributes['metavar']}" if attributes.get("metavar") else ""


def numbers() -> str:
    """Return the table of numbers."""
    rows = [
        (
            f"`{number.name}`",
            number.noun,
            number.unit,
            "a step" if number.scope == "step" else "all steps",
            "the code" if number.exact else "the run",
            _gate(number),
            {"gpu": "a GPU", "kernels": "kernels", None: "-"}[number.needs],
        )
        for number in TABLE
    ]
    return "\n".join(
        [
            "# Numbers\n",
            _MADE,
            "These are all numbers of a recording. `profile.worst`, `profile.median` and each of `profile.steps` have them, and so do reports, baselines and",
            "`--json`. The page of [limits](limits.md#numbers) says which can be limited, and how they are counted.\n",
            *_table(("number", "what", "unit", "of", "decided by", "in a baseline", "needs"), rows),
            "",
            "Numbers that the code decides are the same in every run; the worst step counts. Those that the run decides vary, and are shown as the median.",
            "An unknown number is None, never 0, and a limit on it is *not measured*.",
            "`gpu_utilization` is 0 where nothing but copies and fills ran: no kernel used the GPU. It counts every kernel that ran in the window, also those",
            "that were launched before the steps; `gpu_busy_us` counts what the step launched, copies and fills included. `cpu_time_us` of a recording without",
            "a single operator, call or range of the CPU (the GPU alone, frames of Python alone) is unknown.",
            "`achieved_occupancy` is the mean of kineto's estimates, weighted by time, as other tools show it. kineto writes 0 for kernels whose blocks take",
            "more than 48 KiB of shared memory, as products and attention do on every GPU since Volta, because it does not ask how much they are allowed: the",
            "mean is too low where these take time. `low-occupancy` and the page calculate theirs with kineto's formula.\n",
        ]
    )


def _gate(number: Number) -> str:
    if number.gated:
        return "more of it fails"
    return f"with tolerance `{number.tolerance}`" if number.tolerance else "shown"


def files() -> str:
    """Return what is in the files that the plugin writes."""
    rows = [(f"`{name}`", made()["title"]) for name, made in SCHEMAS.items()]
    return "\n".join(
        [
            "# Files\n",
            _MADE,
            "## Forms of JSON\n",
            "`torchprof schema NAME` prints the schema of each; a release has them in `pytest_torchprof/schemas/NAME.json` too. A new field does not raise",
            "the version.\n",
            *_table(("schema", "what it describes"), rows),
            "",
            "## Recordings\n",
            "A recording is the trace that torch.profiler writes, `.json.gz`, which other tools can read, with one more key,",
            f"`{metadata.KEY}`. {_first(metadata)}\n",
            "A reason is an object whose entry `reason` names its kind, and whose other entries are its facts:",
            '`{"reason": "lost-steps", "found": 2, "measured": 3}`. Earlier versions wrote a text in its place, which is read too.',
            'A disturbance of the machine is such an object as well, whose entry `disturbance` names its kind: `{"disturbance": "slowed-down", "brake": "temperature"}`.\n',
            *_classes(),
            "## Baselines\n",
            "Their form is described [with an example](baselines.md#the-file).\n",
        ]
    )


def _first(module: object) -> str:
    paragraphs = (inspect.getdoc(module) or "").split("\n\n")
    return " ".join(
        paragraphs[1].replace("Each class is an object of the JSON, each field one of its entries. ", "").split()
    )


def _classes() -> Iterator[str]:
    """Yield a section for each object of the key, in the order in which they contain each other."""
    written = [
        (node, getattr(module, node.name))
        for module in (caches, captured_graphs, compile_evidence, metadata)
        for node in ast.parse(Path(module.__file__).read_text()).body
        if isinstance(node, ast.ClassDef) and _is_struct(getattr(module, node.name))
    ]
    for node, kind in reversed(written):
        told = (ast.get_docstring(node) or "").split("\n\n")
        yield f"### {node.name}\n"
        yield "\n\n".join(" ".join(part.split()).replace("``", "`") for part in told) + "\n"
        yield from _table(("entry", "type", ""), _fields(node.body, kind))
        yield ""


def _is_struct(kind: type) -> bool:
    return issubclass(kind, Struct)


def _fields(body: Sequence[ast.stmt], kind: type[Struct]) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each entry, under the name that it has in the file."""
    written = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    for here, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            told = following.value if isinstance(following, ast.Expr) else None
            words = told.value if isinstance(told, ast.Constant) else ""
            yield f"`{written[here.target.id]}`", _type(here.annotation), _cell(str(words)).replace("``", "`")


_WORDS = {
    "Phase": "text",
    "Count": "whole number",
    "int": "whole number",
    "str": "text",
    "StoredReason": "reason",
    "AnyCompilerEvent": "object",
    "AnySetting": "object",
    "AnyWhyUncompiled": "object",
    "AnyDisturbance": "disturbance",
    "float": "number",
    "bool": "true or false",
}


def _type(node: ast.expr) -> str:
    """Return a type of Python as JSON has it."""
    match node:
        case ast.BinOp(left, _, right):
            return f"{_type(left)} or {_type(right)}"
        case ast.Subscript(ast.Name("Mapping"), ast.Tuple([_, value])):
            return f"object of {_plural(_type(value))}"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple([value, ast.Constant(value=_)])):
            return f"list of {_plural(_type(value))}"
        case ast.Subscript(ast.Name("tuple"), ast.Tuple(values)):
            return f"list of {len(values)} {_plural(_type(values[0]))}"
        case ast.Constant(None):
            return "null"
        case ast.Name(name):
            return _WORDS.get(name, f"[{name}](#{name.lower()})")
    raise TypeError(f"no words for {ast.unparse(node)}")


def _plural(words: str) -> str:
    """Return a type as there are several of it; what is a link stays one."""
    heads = words.split(" or ")
    return " or ".join(head if head[-1:] in ")s" else plural(head) for head in heads)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {"options.md": options, "numbers.md": numbers, "files.md": files}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (DOCS / name).write_text(make().rstrip() + "\n", encoding="utf-8")
