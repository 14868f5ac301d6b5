"""A command that needs an extra says so before it works, and names what installs it from where this package came."""

from __future__ import annotations

import json
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from composer_hub import exits, extras
from tests.cli.conftest import Command

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
# A line that needs the extra, and a module of it. The repositories do not exist, so nothing else can be said first.
LINES = [
    ("space", "duckdb", "demo --open --keep kept"),
    ("space", "gradio", "space open me/none@v1.0.0"),
    ("train", "trl", "train tiny"),
    ("train", "trl", "eval small --tasks none:none"),
    ("train", "torch", "pairs precompute-ref me/none@v1.0.0 --model small --repo me/none"),
    ("train", "transformers", "export me/none@v1.0.0 --as sft --tokenizer small --out kept"),
    ("openenv", "openenv", "tasks serve me/none@v1.0.0"),
    ("tasks", "pip", "tasks make . --repo me/none"),
    ("scale", "datatrove", "ingest . --repo me/none --executor datatrove"),
    ("scale", "datatrove", "ingest . --repo me/none --executor slurm --engine partition=cpu --engine time=1:00:00"),
]
# Cards have no plots without matplotlib, environments check `harbor:` themselves, verifiers imports us, and only the
# package shows whether its tasks need `javascript`.
NEVER_NEEDED_FIRST = {"report", "harbor", "verifiers", "javascript", "docs", "dev"}


def test_every_extra_is_needed_by_a_line_or_by_no_command() -> None:
    assert {extra for extra, _, _ in LINES} | NEVER_NEEDED_FIRST == set(EXTRAS)


@pytest.mark.parametrize(("extra", "module", "line"), LINES, ids=[line for _, _, line in LINES])
def test_a_command_without_its_extra_says_so_first(
    extra: str, module: str, line: str, in_process: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    run = in_process(*line.split())
    assert run.returncode == exits.USAGE, run.stderr
    assert module in run.stderr
    assert extras.install(extra) in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "kept").exists()


def test_a_scan_without_its_scanner_is_refused_before_files_are_read(in_process: Command, sessions: Path) -> None:
    run = in_process("ingest", sessions, "--repo", "me/scanned", "--scan", PATH="/nonexistent")
    assert run.returncode == exits.FAILURE
    assert "pip install kingfisher-bin" in run.stderr
    assert run.stdout == ""


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "composer-hub[space]"),  # an index
        ({"url": "file:///a%20b/composer_hub-1-py3-none-any.whl", "archive_info": {}},
         "/a b/composer_hub-1-py3-none-any.whl[space]"),
        ({"url": "file:///src/composer-hub", "dir_info": {}}, "/src/composer-hub[space]"),
        ({"url": "https://host/us/hub", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
         "composer-hub[space] @ git+https://host/us/hub@abc"),
        ({"url": "https://host/hub.whl", "archive_info": {}}, "composer-hub[space] @ https://host/hub.whl"),
    ],
)  # fmt: skip
def test_a_package_is_named_by_the_place_that_it_was_installed_from(record: dict[str, object], words: str) -> None:
    assert extras.requirement("space", extras.place_of(json.dumps(record))) == words


def test_a_checkout_is_installed_again_as_it_is() -> None:
    assert shlex.split(extras.install("space")) == ["pip", "install", "-e", f"{ROOT}[space]"]
