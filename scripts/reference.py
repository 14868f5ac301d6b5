#!/usr/bin/env python3
"""Write docs/reference/ from the code: commands, columns, harnesses, errors, reasons, exit codes, presets, Python.

    python scripts/reference.py            writes the pages
    python scripts/reference.py --check    exit 1 and the names of stale pages

Every sentence of these pages is in the code: help of options, comments of fields, docstrings. A column without
a comment is an error here, so that no column is published without its meaning.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from composer_hub import exits, records
from composer_hub.cli.main import COMMANDS, root
from composer_hub.environments.executed import VERDICTS
from composer_hub.errors import vocabulary
from composer_hub.harnesses import FACTS, HARNESSES, TESTED_ON
from composer_hub.ingest.reasons import PREFIX_REASONS
from composer_hub.pairs import consensus, report
from composer_hub.pairs.repairing import repairs
from composer_hub.tasks.language import PackageRefused

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Made by scripts/reference.py. Change the code instead. -->\n\n"

# Rows of published tables, and the tables that hold them.
ROWS = {
    "Trace": "`traces` of a trace dataset",
    "StepRow": "`steps` of a trace dataset",
    "Step": "a step in `traces`",
    "ErrorSite": "a value of `error_sites`",
    "Hint": "a value of `hints`",
    "Message": "a message, as one JSON value",
    "Pair": "`default` of a pair dataset",
    "Vote": "`votes` of a pair dataset",
    "Execution": "`executed` of a pair dataset",
    "Task": "`tasks` of a task dataset",
    "SourceEdit": "a file in `edits`, `solution` or `hidden` of a task",
}
STAGES = (
    "ingest redact errors hints actions replay pairs tasks environments exports hub jobs report shards train".split()
)


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    made = {
        "commands.md": commands_page(),
        "columns.md": columns_page(),
        "harnesses.md": harnesses_page(),
        "errors.md": errors_page(),
        "reasons.md": reasons_page(),
        "exit_codes.md": exits_page(),
        "presets.md": presets_page(),
        "trainer.md": trainer_page(),
        "python.md": python_page(),
    }
    return {name: MADE + text.rstrip() + "\n" for name, text in made.items()}


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    """Return a Markdown table; a line break or a bar in a cell would end it."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(_cell(text) for text in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


# ---------------------------------------------------------------------------------------------------------- commands


def commands_page() -> str:
    """Return one section per command, with its arguments, options, defaults and help."""
    parts = [
        "# Commands",
        "Every command takes `--help`. Results go to stdout, progress to stderr. "
        "`--format json` and `--format agent` are for programs. The [exit codes](exit_codes.md) are the same for all.",
        table(
            ("command", "use"), [(f"[`{name}`](#composer-hub-{name})", text) for name, (_, text) in COMMANDS.items()]
        ),
    ]
    for name in COMMANDS:
        command = root.get_command(click.Context(root), name)
        assert command is not None
        parts += _sections(command, ("composer-hub", name))
    return "\n\n".join(parts)


def _sections(command: click.Command, path: tuple[str, ...]) -> Iterator[str]:
    name, level = " ".join(path), "#" * len(path)
    yield f"{level} {name}"
    yield _help(command)
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            assert found is not None
            yield from _sections(found, (*path, child))
        return
    yield f"    {' '.join([name, *command.collect_usage_pieces(context)])}"
    options = [
        parameter for parameter in command.params if isinstance(parameter, click.Option) and not parameter.hidden
    ]
    if options:
        yield table(("option", "default", "meaning"), [_option(option) for option in options])


def _help(command: click.Command) -> str:
    """Return the help as Markdown: blocks after `\\b` keep their lines."""
    text = inspect.cleandoc(command.help or "").split("\f")[0]
    blocks = []
    for block in text.split("\n\n"):
        if block.startswith("\b"):
            lines = block.splitlines()[1:]
            blocks.append("\n".join(f"    {line}" for line in lines))
        else:
            blocks.append(" ".join(block.split()))
    return "\n\n".join(blocks)


def _option(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if not option.is_flag and not option.count:
        names += f" {_cell(option.make_metavar(click.Context(click.Command('x')))).replace('[', '').replace(']', '')}"
    default = option.default
    if isinstance(option.show_default, str):
        shown = option.show_default
    elif option.secondary_opts and isinstance(default, bool):
        shown = f"`{(option.opts if default else option.secondary_opts)[0]}`"
    else:
        shown = _shown(option)
    return names, "required" if option.required else shown, option.help or ""


def _shown(option: click.Option) -> str:
    default = option.default
    return (
        ""
        if option.is_flag or default is None or callable(default) or default in ((), "") or _is_unset(default)
        else f"`{default}`"
    )


def _is_unset(value: Any) -> bool:
    return type(value).__name__ == "Sentinel"  # click's mark for an option without a default


# ----------------------------------------------------------------------------------------------------------- columns


def columns_page() -> str:
    """Return the columns of every published table with the comments of their fields."""
    parts = [
        "# Columns",
        "One row is one frozen dataclass of `composer_hub/records.py`; a field is a column on the Hub. "
        "A column with a default may be missing in versions that are older than it. "
        "`json` columns hold one exact JSON value as text.",
    ]
    for name, place in ROWS.items():
        row = getattr(records, name)
        parts += [
            f"## {name}",
            f"{_first_line(row)} In {place}.",
            table(("column", "type", "meaning"), list(_columns(row))),
        ]
    return "\n\n".join(parts)


def _columns(row: type) -> Iterator[tuple[str, str, str]]:
    source = inspect.getsource(row)
    fields = {node.lineno: node for node in ast.parse(source).body[0].body if isinstance(node, ast.AnnAssign)}  # type: ignore[attr-defined]
    comments = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    for line, node in fields.items():
        name = ast.unparse(node.target)
        # A comment is after its field, or on the line above.
        meaning = comments.get(line) or (comments.get(line - 1) if line - 1 not in fields else None)
        if not meaning:
            raise SystemExit(
                f"{row.__name__}.{name} has no meaning: write a comment behind it in composer_hub/records.py."
            )
        yield f"`{name}`", f"`{_type(ast.unparse(node.annotation))}`", meaning


def _type(annotation: str) -> str:
    annotation = annotation.replace("JsonObject", "json").replace("tuple[tuple[int, int], ...]", "list of [int, int]")
    return re.sub(r"tuple\[(\w+), \.\.\.\]", r"list of \1", annotation).replace("Any", "json")


# --------------------------------------------------------------------------------- harnesses, errors, codes, presets


def harnesses_page() -> str:
    """Return what each session format gives and lacks."""
    lasts = {True: "yes", False: "no", None: "not known"}
    rows = [
        (f"`{one.name}`", one.title, one.files, one.gives, one.lacks, lasts[one.shell.keeps_cwd], one.tested_on)
        for one in HARNESSES
    ]
    return "\n\n".join(
        [
            "# Harnesses",
            "Formats that `ingest` and `report` recognize by their content. "
            "The first column is `--from` and `Trace.source`.",
            table(("name", "harness", "files", "gives", "lacks", "a `cd` lasts", "tested on"), rows),
            "Small sessions in the tests show each fact that a format gives, and whether a `cd` lasts. "
            "Words in parentheses limit a fact. A format lacks what its files do not hold or its reader does not read.",
            table(("fact", "meaning"), FACTS.items()),
            table(("tested on", "meaning"), TESTED_ON.items()),
            "## Reasons of inexact prompts",
            "`prefix_reason` of a step; several are joined by `; `. A reason holds until the next compaction, "
            "`missing_result` until the result arrives. The system prompt does not count.",
            table(("reason", "meaning"), [(f"`{name}`", text) for name, text in PREFIX_REASONS.items()]),
        ]
    )


def errors_page() -> str:
    """Return every kind of error with its words and whose fault it is by default."""
    rows = [
        (f"`{kind}`", vocabulary.kind_words(kind), f"`{blame}`: {vocabulary.BLAMES[blame]}", vocabulary.EVIDENCE[kind])
        for kind, blame in vocabulary.KINDS.items()
    ]
    return "\n\n".join(
        [
            "# Kinds of errors",
            "`ErrorSite.kind`, in the words of the report and the Space, "
            "with the blame that it has unless the session shows another.",
            table(("kind", "words", "blame", "evidence, for example"), rows),
        ]
    )


def reasons_page() -> str:
    """Return the reasons and metrics that commands count, from the docstrings beside the code."""
    parts = ["# Reasons and metrics", "Names that commands, reports and cards count."]
    for title, text, head, documented in (
        ("Steps without a pair", "Each step has one reason ([pairs](../pairs.md)).", "reason", consensus),
        (
            "Failed steps without an own repair",
            "For `pairs build --from own-repairs`.",
            "reason",
            inspect.getmodule(repairs),
        ),
        (
            "The report of a pair set",
            "The config `report` has rows `metric, scope, value, low, high, n`. Intervals are 95 %, from drawing whole "
            "traces. A single trace has none.",
            "metric",
            report,
        ),
        (
            "Packages without tasks",
            "`tasks make` lists a package that gives nothing with its reason, and the others continue "
            "([tasks](../tasks.md)).",
            "reason",
            PackageRefused,
        ),
    ):
        parts += [f"## {title}", text, table((head, "meaning"), _listed(documented))]
    verdicts = [(f"`{name}`", text) for name, text in VERDICTS.items()]
    parts += ["## Executed pairs", "`verdict` of the config `executed`.", table(("verdict", "meaning"), verdicts)]
    return "\n\n".join(parts)


def _listed(documented: type | ModuleType) -> list[tuple[str, str]]:
    """Return the names and meanings of a docstring's lines `name, name: meaning`, which may continue further in."""
    text = inspect.getdoc(documented) or ""
    indent = "" if isinstance(documented, type) else "    "
    lines = re.findall(rf"(?m)^{indent}([\w…]+(?:, [\w…]+| …)*): (.+(?:\n{indent} +\S.*)*)", text)
    return [(re.sub(r"[\w…]*\w[\w…]*", r"`\g<0>`", names), meaning) for names, meaning in lines]


def exits_page() -> str:
    """Return the exit codes and the exceptions that carry them."""
    kinds: list[type[exits.ComposerError]] = [
        exits.ComposerError,
        exits.UsageError,
        exits.Stopped,
        exits.Refused,
        exits.NothingToDo,
        exits.Interrupted,
    ]
    rows = [("0", "", "Done.")]
    rows += [(str(kind.exit_code), f"`{kind.__name__}`", _first_line(kind)) for kind in kinds]
    rows.append(("128 + number", "", "Ended by a signal."))
    return "\n\n".join(
        [
            "# Exit codes",
            "Every command ends with one of these; in Python, the exception is raised.",
            table(("code", "exception", "meaning"), rows),
        ]
    )


def presets_page() -> str:
    """Return every preset of `train` with the comment that it opens with."""
    rows = []
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        lines = path.read_text().splitlines()
        opening = [
            line.lstrip("# ") for line in lines[: next(n for n, line in enumerate(lines) if not line.startswith("#"))]
        ]
        rows.append(
            (
                f"[`{path.stem}`](https://github.com/composer-hub/composer-hub/blob/main/configs/{path.name})",
                " ".join(opening),
            )
        )
    return "\n\n".join(
        [
            "# Presets",
            "`composer-hub train NAME` takes these, and options after the name override them.",
            table(("preset", "use"), rows),
        ]
    )


def trainer_page() -> str:
    """Return the trainer's options and metrics; both are read without importing torch."""
    fields = [node for node in _top_level("config.py", ast.ClassDef).body if isinstance(node, ast.AnnAssign)]
    options = [_trainer_option(node) for node in fields if isinstance(node.value, ast.Call)]
    metrics = ast.literal_eval(_top_level("metrics.py", ast.Assign).value)
    return "\n\n".join(
        [
            "# The trainer",
            "`ComposerConfig` has the options of TRL's `GRPOConfig` and these. "
            "[Training](../training.md) explains the channels.",
            "## Options",
            table(("option", "default", "meaning"), options),
            "## Metrics",
            "Logged beside TRL's own, as means over ranks and over the batches since the last log. "
            "A metric without a value is left out. `loss` is `channel/policy/loss` plus each other term times its "
            "weight. Recorded sites log the names of `channel/hint/` under `channel/hint_traces/`, without "
            "`sites_per_rollout` and the reasons; `channel/hint_traces/left_out` is a share of the sites.",
            table(("metric", "meaning"), [(f"`{name}`", text) for name, text in metrics.items()]),
        ]
    )


def _top_level(name: str, kind: type[ast.stmt]) -> Any:
    tree = ast.parse((ROOT / "composer_hub" / "train" / name).read_text())
    return next(node for node in tree.body if isinstance(node, kind))


def _trainer_option(node: Any) -> tuple[str, str, str]:
    words = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.value.keywords}
    return f"`{node.target.id}`", str(words["default"]), words["metadata"]["help"]


# -------------------------------------------------------------------------------------------------------- Python API


def python_page() -> str:
    """Return the public names of every stage: their signatures and the first lines of their docstrings."""
    parts = [
        "# Python API",
        "What `__all__` of each stage exports. [The Python API by example](../api.md) shows each stage in five lines.",
    ]
    for stage in STAGES:
        module = importlib.import_module(f"composer_hub.{stage}")
        rows = [
            (f"`{_signature(module, name)}`", _first_line(getattr(module, name))) for name in sorted(module.__all__)
        ]
        parts += [f"## composer_hub.{stage}", _first_line(module), table(("name", "use"), rows)]
    return "\n\n".join(parts)


def _signature(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if isinstance(value, type) or not inspect.isroutine(value):
        return name
    parameters = inspect.signature(value).parameters.values()
    names = [
        ("*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else "") + p.name for p in parameters
    ]
    return f"{name}({', '.join(names)})"


def _first_line(value: Any) -> str:
    if not isinstance(value, (type, ModuleType)) and not inspect.isroutine(value):
        return f"A constant: `{value!r}`." if len(repr(value)) < 60 else "A constant."
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


def main() -> None:
    """Write the pages, or name those that are stale."""
    stale = [
        name for name, text in pages().items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv:
        print(
            "\n".join(f"docs/reference/{name} is stale: run python scripts/reference.py" for name in stale)
            or "The reference is current."
        )
        sys.exit(bool(stale))
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
    print(f"{len(stale)} of {len(pages())} pages changed.")


if __name__ == "__main__":
    main()
