"""Which of the publisher's own values are secret, and what the second scanner's answer means."""

from __future__ import annotations

import stat
from collections import Counter
from pathlib import Path

import pytest

from composer_hub.exits import REFUSED
from composer_hub.redact import LeakFound, RedactionError, dotenv_secrets, environment_secrets, refuse_leaks
from composer_hub.redact.scanner import scan_with_kingfisher


def test_secret_variables_are_taken_by_name_or_by_value() -> None:
    variables = {
        "SERVICE_TOKEN": "q8Zr3WmX1pLk7V", "DB_PASSWORD": "hunter2!x",
        "HARMLESS": "ghp_" + "aZ3kQ9xW7mP2rT5vB8nC1dF4gH6jL0sY", "PATH": "/usr/bin:/bin", "HOME": "/home/jane",
        "EDITOR": "vim", "TOKEN_LIMIT": "40960000", "API_KEY": "your-api-key", "SSH_AUTH_SOCK": "/tmp/ssh-x/agent.1",
        "SHORT_SECRET": "abc1",
    }  # fmt: skip
    assert set(environment_secrets(variables)) == {
        variables[name] for name in ("SERVICE_TOKEN", "DB_PASSWORD", "HARMLESS")
    }


def test_env_files_are_found_below_a_folder_and_read_with_quotes_and_comments(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app/.env.local").write_text(
        "# x\nexport API_TOKEN='q8Zr3WmX1pLk7V'\nDB_PASSWORD=hunter2!x # dev\nNAME=app\nbroken line\n"
    )
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules/.env").write_text("OTHER_TOKEN=aaaaaa7Zr3WmX1pL\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert set(dotenv_secrets([tmp_path, tmp_path / "missing"])) == {"q8Zr3WmX1pLk7V", "hunter2!x"}


def scanner(folder: Path, script: str) -> str:
    """Write a stand-in for the scanner: it gets the same arguments and runs this script."""
    path = folder / "kingfisher"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


FOUND = '{"findings": [{"rule": {"id": "github-pat"}, "finding": {"snippet": "ghp_theVeryValue"}}]}'


def test_a_finding_refuses_the_push_and_names_the_rule_but_not_the_value(tmp_path: Path) -> None:
    with pytest.raises(LeakFound, match="github-pat 1") as refused:
        refuse_leaks(["text"], scanner(tmp_path, f"echo '{FOUND}'; exit 200"))
    assert refused.value.exit_code == REFUSED
    assert "theVeryValue" not in str(refused.value)
    assert refused.value.findings == Counter({"github-pat": 1})


def test_a_clean_scan_passes_and_sees_every_text(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    command = scanner(tmp_path, f'cat "$2"/* > {seen}; echo \'{{"findings": []}}\'')
    assert scan_with_kingfisher(["one", "two\ud800"], command) == Counter()
    assert seen.read_text() == "one\n\ntwo?\n\n"


@pytest.mark.parametrize(("script", "message"), [
    ("exit 3", "exited with code 3"),
    ("echo ghp_leaked; exit 200", "report could not be read"),
    ("echo '{}'", "report could not be read"),
], ids=["a failure", "no report", "another report"])  # fmt: skip
def test_an_unclear_scan_does_not_pass(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(RedactionError, match=message) as failed:
        scan_with_kingfisher(["text"], scanner(tmp_path, script))
    assert "leaked" not in str(failed.value)


def test_findings_without_a_list_still_count(tmp_path: Path) -> None:
    assert scan_with_kingfisher(["text"], scanner(tmp_path, "exit 205")) == Counter({"unnamed": 1})


def test_a_missing_scanner_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RedactionError, match="did not finish"):
        scan_with_kingfisher(["text"], str(tmp_path / "none"))
