"""Error sites of real sessions, against counts written down by hand from the raw files."""

# ruff: noqa: E501  # counts stand beside their file

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.hints.writers import hint_coverage, write_hints, writers_named
from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import source_named
from composer_hub.records import Trace


def traces(path: Path, source: str, *, text_rules: bool = False) -> list[Trace]:
    sessions = list(source_named(source).read(path, FileReport(str(path))))
    return [find_errors(session, text_rules=text_rules) for session in sessions]


def kinds(found: list[Trace]) -> dict[str, int]:
    return dict(Counter(site.kind for trace in found for step in trace.steps for site in step.error_sites))


# Read by hand: every result with an error flag or an exit code, every call without a result, every aborted turn.
BY_HAND = {
    ("claude_code/cc-2.1-errors-mixed.jsonl", "claude_code"): {"nonzero_exit": 7, "path_not_found": 1, "user_rejected": 2},
    ("claude_code/cc-2.1.128.jsonl", "claude_code"): {"nonzero_empty": 1, "stale_read": 1, "dangling_call": 1},
    ("codex/rollout-0.12x-a.jsonl", "codex"): {"nonzero_empty": 1},
    # Eight refused edits in a row (the third to the eighth repeat), then three searches for text that is not there.
    ("openhands/v0-resolver-output.jsonl", "openhands_v0"): {"edit_syntax_rejected": 8, "repeated_failure": 6, "edit_no_match": 3},
    # Two commands in one call, and a traceback under a nonzero exit code.
    ("openhands/v1-events.jsonl", "openhands_v1"): {"format_error": 1, "runtime_exception": 1},
    # Six "SEARCH/REPLACE block failed to match", at lines 299, 336, 463, 501, 631 and 1744; two of them are third in a row.
    ("aider/chat-history-a.md", "aider"): {"edit_no_match": 6, "repeated_failure": 2},
    ("mini/local.traj.json", "mini_swe_agent"): {},
    ("swe_agent/ctf-i_got_id_demo.traj", "swe_agent"): {},
    ("gemini/gemini-chat-2.json", "gemini"): {},
    ("inspect/popularity.eval", "inspect"): {},
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), BY_HAND, ids=[name for name, _ in BY_HAND])
def test_the_sites_are_those_counted_by_hand(samples: Path, name: str, source: str) -> None:
    assert kinds(traces(samples / name, source)) == BY_HAND[name, source]
    assert kinds(traces(samples / name, source, text_rules=True)) == BY_HAND[name, source]


def test_in_rows_without_flags_errors_come_from_the_text(samples: Path) -> None:
    path = samples / "swe_smith/swe-smith-sample-rows.json"
    # The failed pytest run of row 4, message 57.
    assert kinds(traces(path, "chat_rows")) == {"test_failure": 1}
    # Tracebacks of row 3, messages 9 and 37, and row 4, messages 17 and 23; a failed pytest run of row 4, message 57. Two more are
    # not told: one is followed by a warning (3, 27), one by the words of `|| echo` (4, 27).
    assert kinds(traces(path, "chat_rows", text_rules=True)) == {
        "program_exception": 4,
        "test_failure": 1,
    }


def test_what_grep_finds_nothing_in_and_what_a_person_stopped_is_not_the_models_fault_in_pi(samples: Path) -> None:
    found = traces(samples / "pi/pi-large-session.jsonl", "pi")
    counted = kinds(found)
    assert {
        kind: counted.get(kind) for kind in ("nonzero_empty", "compile_or_lint", "path_not_found", "dangling_call")
    } == {
        "nonzero_empty": 11,
        "compile_or_lint": 16,  # four with an exit code, twelve behind a pipe into tail, head or grep
        "path_not_found": 3,  # one behind a pipe into head
        "dangling_call": 18,
    }
    assert counted.keys() <= {
        "nonzero_empty",
        "compile_or_lint",
        "path_not_found",
        "dangling_call",
        "interrupted",
        "api_error",
    }


def test_hindsight_names_what_worked_in_a_real_session(samples: Path) -> None:
    (trace,) = traces(samples / "claude_code/cc-2.1.128.jsonl", "claude_code")
    written = write_hints(trace, writers_named("hindsight,quoted,environment"))
    (hint,) = (hint for step in written.steps for hint in step.hints if hint.kind == "stale_read")
    assert hint.text.startswith("First read /Users/")
    assert hint.text.endswith("FIRST-TIME-CONTRIBUTORS.md.")
    assert hint_coverage([written])["num_model_sites_hinted"] == 1
