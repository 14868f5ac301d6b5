"""The documentation is current: generated pages match their sources, links lead somewhere, and tutorials run."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import nbclient
import nbformat
import pytest

from composer_hub import report
from composer_hub.cli.main import root
from composer_hub.errors.vocabulary import BLAMES
from tests.quick import quick

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_in(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, list):
        for item in nav:
            yield from names_in(item)
    elif isinstance(nav, dict):
        yield from names_in(list(nav.values()))


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings as sites and forges write them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    texts = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in texts}


def test_the_reference_is_what_the_code_says() -> None:
    reference = script("reference")
    stale = [name for name, text in reference.pages().items() if (DOCS / "reference" / name).read_text() != text]
    assert not stale, "run python scripts/reference.py"


def first_words(folder: str, *names: str) -> set[str]:
    """Return the texts with which the code of a folder calls one of the names."""
    calls = [
        node
        for path in sorted((ROOT / "composer_hub").glob(folder))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in names and node.args
    ]
    return {str(first.value) for call in calls if isinstance(first := call.args[0], ast.Constant)}


@pytest.mark.parametrize(
    ("folder", "names"),
    [("tasks/*.py", ["PackageRefused"]), ("pairs/report.py", ["Metric", "metric", "mean", "weighted_mean"])],
)
def test_every_reason_and_metric_that_the_code_counts_is_in_the_reference(folder: str, names: list[str]) -> None:
    explained = set(re.findall(r"`(\w+)`", (DOCS / "reference" / "reasons.md").read_text()))
    counted = first_words(folder, *names)
    assert len(counted) > 10
    assert counted <= explained


def test_every_reason_of_a_step_without_an_own_repair_is_in_the_reference() -> None:
    given = {
        node.value.elts[1].value
        for node in ast.walk(ast.parse((ROOT / "composer_hub/pairs/repairing.py").read_text()))
        if isinstance(node, ast.Return)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.value.elts[1], ast.Constant)
    } - {""}
    assert len(given) > 3
    page = (DOCS / "reference" / "reasons.md").read_text()
    assert {f"`{reason}`" for reason in given if f"`{reason}`" not in page} == set()


def test_the_notebooks_are_the_tutorials() -> None:
    stale = [path.name for path, text in script("notebooks").notebooks().items() if path.read_text() != text]
    assert not stale, "run python scripts/notebooks.py"


def test_the_glossary_names_every_blame() -> None:
    row = re.search(r"^\| blame \| (.+) \|$", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert row
    assert set(BLAMES) <= set(re.findall(r"\w+", row[1]))


def test_the_first_tutorial_quotes_what_its_report_says() -> None:
    quoted = re.search(r"^> (.+)$", (DOCS / "start" / "lost_turns.md").read_text(), re.MULTILINE)
    assert quoted
    assert quoted[1] in " ".join(report.report([ROOT / "composer_hub" / "demo" / "sessions"]).summary().split())


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    nav = list(names_in(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]))
    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_link_of_a_page_leads_to_a_page_and_a_heading(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{target} leads nowhere"
        assert place.is_relative_to(DOCS) or place.is_dir(), (
            f"{target} is not part of the site: use the repository's address"
        )
        if anchor and place.suffix == ".md":
            assert anchor in anchors_of(place), f"{path or page.name} has no heading #{anchor}"


def command_lines(page: Path) -> list[str]:
    """Return the lines of `composer-hub` in the code of a page, continued lines joined."""
    text = page.read_text().replace("\\\n", " ")
    code = re.findall(r"^```(?:bash|sh|console)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    code += re.findall(r"(?<=\n\n)(?: {4}.*\n)+", text)
    lines = (line.strip().removeprefix("$ ") for line in "\n".join(code).splitlines())
    return [line for line in lines if line.startswith("composer-hub ")]


RECIPES = [*sorted((DOCS / "contributing").glob("*.md")), ROOT / "AGENTS.md"]
PLACES = ("", "composer_hub", "composer_hub/train", "composer_hub/replay")  # that a recipe leaves out before a path
MADE_BY_A_RECIPE = {"composer_hub/tasks/go.py", "composer_hub/train/<name>_term.py"}


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.name)
def test_a_recipe_names_only_files_and_names_that_exist(page: Path) -> None:
    text = _FENCE.sub("", page.read_text())
    paths = set(re.findall(r"`((?:[\w<>]+/)+[\w<>]+\.(?:py|md|txt|npz|json|sh|yml))`", text)) - MADE_BY_A_RECIPE
    assert paths
    assert {path for path in paths if not any((ROOT / place / path).exists() for place in PLACES)} == set()
    # "`_COLUMNS` in `space/inspector/pair_index.py`", "`VERSION` of `composer_hub/hints/writers.py`"
    for names, path in re.findall(r"((?:`\w+`,?\s+(?:and\s+)?)+)(?:of|in)\s+`((?:\w+/)+\w+\.py)`", text):
        source = next(ROOT / place / path for place in PLACES if (ROOT / place / path).exists()).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"(?m)^(?:    )?(?:def |class )?{name}\b", source), f"{path} does not define {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_command_of_a_page_exists_with_its_options(page: Path) -> None:
    if page.parent.name == "reference":
        return  # made from the commands
    for line in command_lines(page):
        words = shlex.split(re.split(r" -- |  #| > | \| | && ", line)[0])[1:]
        command: click.Command | None = root
        options: set[str] = {"--help"}
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            command = command.get_command(click.Context(command), words.pop(0))
            assert command is not None, f"{line}: no such command"
            options |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if command is not None and command.context_settings.get("ignore_unknown_options"):
            continue  # the rest is for the trainer or another program
        unknown = {word.split("=")[0] for word in words if word.startswith("--")} - options
        assert not unknown, f"{line}: no option {', '.join(sorted(unknown))}"


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    program = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
    built = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "site" / "reference" / "columns" / "index.html").exists()


@pytest.mark.parametrize("name", quick(1, ["lost_turns", "pairs"]))
def test_a_tutorial_runs_as_a_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a real kernel and a fresh home. The third tutorial is `train tiny`, which other tests run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    (tmp_path / "composer_hub" / "demo").mkdir(parents=True)
    (tmp_path / "composer_hub" / "demo" / "sessions").symlink_to(ROOT / "composer_hub" / "demo" / "sessions")
    text = (DOCS / "start" / f"{name}.ipynb").read_text().replace("8765", port)
    notebook = nbformat.reads(text, as_version=4)
    try:
        nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    finally:
        left = subprocess.run(["composer-hub", "hub", "stop"], capture_output=True, check=False).returncode == 0
        if (pid := tmp_path / "teachers.pid").exists():
            with contextlib.suppress(ProcessLookupError):  # the tutorial has stopped them
                os.kill(int(pid.read_text()), signal.SIGTERM)
    assert not left, "the tutorial leaves its Hub running"
    assert "Traceback" not in nbformat.writes(notebook)
