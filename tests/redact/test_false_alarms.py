"""The gate against false alarms: nothing in ordinary sessions is a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub.ingest.reading import Reading
from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor

FIXTURES = Path(__file__).parents[1] / "fixtures/harnesses"


VERDICTS: dict[str, str] = {}
"""Each distinct SECRET in the sample sessions, with the verdict of who read it: right, or why it stays."""


def secrets_in(paths: list[Path]) -> set[str]:
    redactor = Redactor(b"salt", max_samples=1_000_000)
    for session in Reading(paths):
        redactor.trace(session.trace)
    return {
        sample.value for sample in redactor.samples.values() if sample.label == "SECRET" and not sample.is_suggestion
    }


def test_the_fixtures_of_all_harnesses_hold_no_secret() -> None:
    assert secrets_in([FIXTURES]) == set()


def test_each_secret_of_the_sample_sessions_was_read(samples: Path) -> None:
    code_mode = samples.parent / "codex_code_mode"
    assert secrets_in([samples, *([code_mode] if code_mode.exists() else [])]) == VERDICTS.keys()


HEX = "4f9d2c81aa07e3b5cc6d1e2f3a4b5c6d7e8f9a0b"
# Shapes of lines that were once taken for secrets, or that a looser rule would take.
ORDINARY = {
    "a passed test": ("go test ./...", "--- PASS: TestWithAgent2FA (0.00s)\nPASS: test_login_v2\nok  auth/token 0.41s"),
    "a redirection": ("head -5 log.jsonl | jq -c 'keys' 2>/dev/null | head -5", "[]"),
    "a dummy": ('export GH_TOKEN="github_pat_xxxx"', ""),
    "prose": ("", "the net modified lines, HumanAdded is new user lines, HumanModified is agent lines"),
    "a commit": ("git rev-parse HEAD:auth/password.go", "9c1185a5c5e9fc54612808977ee8f548b2258d31"),
    "a container": ("docker run -d --env-file secrets.env app", HEX),
    "a key of a cache": ("gh run view 12 --log", f"restored from key: Linux-node-{HEX}"),
    "a checkpoint": ("grep -n key log", "scenario_test.go:119: Checkpoint ID: 66259f1a9213"),
    "a count of tokens": ("", '{"input_tokens": 1204, "max_tokens": 4096, "token_type": "Bearer"}'),
    "a generic login": ("", '{"login": "dependabot[bot]", "type": "Bot", "avatar_url": "https://x.io/1"}'),
    "a license": (
        "cat LICENSE",
        "Neither the name of the copyright holder nor the names of its contributors may be used to endorse or promote "
        "products.\nTHIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS \"AS IS\"",
    ),
    "a schema": ("", '{"name": "password", "type": "string", "description": "Your password", "default": "changeme"}'),
}  # fmt: skip


@pytest.mark.parametrize(("command", "output"), ORDINARY.values(), ids=ORDINARY)
def test_an_ordinary_command_and_its_output_stay_as_they_are(command: str, output: str) -> None:
    call = ToolCall("Bash", {"command": command}, "c1")
    messages = (Message("assistant", "I check the token.", (call,)), Message("tool", output, tool_call_id="c1"))
    assert Redactor(b"salt").trace(Trace("t", "x", "s", messages, ())).messages == messages
