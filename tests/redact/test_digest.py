"""The digest of the rules changes with any rule, and with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import composer_hub.redact
from composer_hub.ingest.dataset import TraceCounts, numbers_of, trace_card
from composer_hub.ingest.report import FileReport
from composer_hub.redact import judge_digest, rules_digest
from composer_hub.redact.data import digest

PACKAGE = Path(composer_hub.redact.__file__).parent
RULES = sorted(
    path.relative_to(PACKAGE).as_posix() for end in ("py", "txt", "npz") for path in PACKAGE.rglob(f"*.{end}")
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return shutil.copytree(PACKAGE, tmp_path / "redact", ignore=shutil.ignore_patterns("__pycache__"))


def test_a_copy_has_the_same_digest_also_zipped_and_with_other_line_ends(copy: Path, tmp_path: Path) -> None:
    assert digest(copy) == rules_digest()
    with zipfile.ZipFile(tmp_path / "redact.zip", "w") as file:
        for name in RULES:
            text = (copy / name).read_bytes()
            file.writestr(name, text if name.endswith(".npz") else text.replace(b"\n", b"\r\n"))
    assert digest(zipfile.Path(tmp_path / "redact.zip")) == rules_digest()


@pytest.mark.parametrize("name", RULES)
def test_a_change_to_any_module_or_list_changes_the_digest(copy: Path, name: str) -> None:
    (copy / name).write_bytes((copy / name).read_bytes() + b"x")
    assert digest(copy) != rules_digest()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("judge.py", "MIN_SURPRISE = 3.6", "MIN_SURPRISE = 4.6"), ("data/words.txt", "acct, agent", "acct, actor, agent")],
)
def test_a_threshold_and_a_word_count(copy: Path, name: str, old: str, new: str) -> None:
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new))
    assert digest(copy) != rules_digest()


def test_the_card_has_the_rules_and_the_weights_of_the_judge() -> None:
    numbers = numbers_of(FileReport(), TraceCounts())
    text = trace_card("me/traces", "mit", numbers, redacted=True, reader="hf:a/b@c").holes["redaction"]
    assert f"`{rules_digest()}`" in text
    assert f"`{judge_digest()}`" in text
    assert "`hf:a/b@c`" in text


def test_another_process_computes_the_same_digest() -> None:
    code = "from composer_hub.redact import rules_digest; print(rules_digest())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == rules_digest()
