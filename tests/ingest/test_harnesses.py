"""Every harness has a record, a fixture and a place in the docs, and its files are recognized by their first bytes."""

from __future__ import annotations

import ast
import io
import zipfile
from pathlib import Path

import pytest

import composer_hub
from composer_hub.exits import UsageError
from composer_hub.harnesses import HARNESSES, Harness, harness_named, keeps_cwd, session_folders
from composer_hub.ingest.reasons import PREFIX_REASONS
from composer_hub.ingest.sources import HEAD_BYTES, SOURCES, sniff, source_named
from composer_hub.records import step_rows
from tests.plugins.sessions import LOG_FILES

PACKAGE = Path(composer_hub.__file__).parent
FOLDERS = {"logs", "samples", "tmp_path"}  # fixtures that hold small logs, real ones, and those that a test writes
SAMPLES = {
    "aider/chat-history-a.md": "aider",
    "claude_code/cc-2.1-errors-mixed.jsonl": "claude_code",
    "claude_code/cc-2.1.128.jsonl": "claude_code",
    "claude_stream_json/generated-2.1.197/stream.jsonl": "claude_code",
    "claude_stream_json/sample-turns.json": "claude_code",
    "codex/rollout-0.12x-a.jsonl": "codex",
    "copilot/flat-large.jsonl": "copilot",
    "copilot/schema-drift.jsonl": "copilot",
    "codex_exec/generated-0.169.0/exec.jsonl": "codex",
    "droid/session-store-drift.jsonl": "droid",
    "droid/session-store-small.jsonl": "droid",
    "droid/stream-json-drift.jsonl": "droid",
    "droid/stream-json-large.jsonl": "droid",
    "cursor/agent-transcript-large.jsonl": "cursor",
    "cursor/agent-transcript-small.jsonl": "cursor",
    "cursor/schema-drift.jsonl": "cursor",
    "cursor/teich-export.jsonl": "cursor",
    "gemini/gemini-chat-2.json": "gemini",
    "inspect/popularity.eval": "inspect",
    "grok/subagent/chat_history.jsonl": "grok",
    "hermes/generated-0.19.0/export.jsonl": "hermes",
    "hermes/generated-0.19.0/state.db": "hermes",
    "hermes/schema-drift.json": "hermes",
    "hermes/teich-real-export.jsonl": "hermes",
    "kimi/small/wire.jsonl": "kimi",
    "mini/local.traj.json": "mini_swe_agent",
    "opencode/generated-1.18.33/export.json": "opencode",
    "opencode/generated-1.18.33/opencode.db": "opencode",
    "opencode/generated-1.18.33/run-format-json.jsonl": "opencode",
    "opencode/storage-large/session/proj_test/ses_s_stage0_large.json": "opencode",
    "openhands/v0-resolver-output.jsonl": "openhands_v0",
    "openhands/v1-events.jsonl": "openhands_v1",
    "pi/pi-large-session.jsonl": "pi",
    "qwen/019f0000-0000-7000-8000-000000000005.jsonl": "qwen_code",
    "qwen/generated-0.24.4/chats/session.jsonl": "qwen_code",
    "qwen/generated-0.24.4/stream-json.jsonl": "qwen_code",
    "qwen/splitrail.jsonl": "qwen_code",
    "schema_inventory/claude-all-record-types-2.1.161.jsonl": "claude_code",
    "schema_inventory/codex-all-record-types-0.149.jsonl": "codex",
    "swe_agent/ctf-i_got_id_demo.traj": "swe_agent",
    "swe_smith/swe-smith-sample-rows.json": "chat_rows",
}

# Logs that do not record an id of each message that is unique in all sessions. A copy of one is known by its content.
# An id that the provider gives is none: Ollama draws those of its answers from 999 numbers.
WITHOUT_KEYS = {
    "aider/aider.chat.history.md",  # text only
    "atif/atif_1.7.json",  # steps are numbered
    "chat_rows/anthropic_blocks.jsonl",  # only calls have ids
    "chat_rows/nebius_swe_agent.jsonl",  # texts only
    "chat_rows/swe_gym_openhands.jsonl",  # texts only
    "chat_rows/swe_rebench_openhands.jsonl",  # only calls have ids
    "cline/cline-1/scout.messages.json",  # ids of which no real log shows that they are unique
    "cline/cline_api_conversation_history.json",  # only calls have ids
    "cline/cline_session.messages.json",  # ids of which no real log shows that they are unique
    "copilot/events.jsonl",  # a call that no message asks for has only the provider's id
    "cursor/main-1/subagents/sub-1.jsonl",  # as in any transcript
    "cursor/stream.jsonl",  # a message without calls after it has no id
    "cursor/transcript.jsonl",  # only calls have ids, and few of them
    "droid/stream.jsonl",  # a final text may have no id; the session's id drops copies of what was printed
    "goose/20260708_1.jsonl",  # only calls have ids; databases and streams have those of messages
    "goose/20260709_1.jsonl",  # only calls have ids
    "grok/chat_history.jsonl",  # only calls and thoughts have ids
    "hf_native/hf_native.jsonl",  # converted rows; raw events keep their own ids
    "inspect/small.eval",  # written before replies had ids
    "kimi/cli_wire.jsonl",  # steps of kimi-cli are numbered
    "mini_swe_agent/mini_1.1_cd.traj.json",  # only the provider's ids
    "mini_swe_agent/mini_1.1_responses.traj.json",  # only the provider's ids
    "mini_swe_agent/mini_1.1_toolcalls.traj.json",  # only the provider's ids
    "qwen_code/stream.jsonl",  # only the provider's ids
    "swe_agent/swe_agent_1x.traj",  # only calls have ids
}


def claims(path: Path, size: int = HEAD_BYTES) -> list[str]:
    head = path.read_bytes()[:size]
    return [source.name for source in SOURCES if source.sniff(head, path)]


def zip_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "{}")  # no clock in it: test ids are made of these bytes
    return buffer.getvalue()


@pytest.mark.parametrize("harness", HARNESSES, ids=lambda harness: harness.name)
def test_a_harness_has_a_reader_and_a_fixture(harness):
    assert source_named(harness.name).read
    assert harness.name in LOG_FILES.values()
    assert harness.folders or "`~/" not in harness.files  # or a plain `ingest` does not look there


@pytest.mark.parametrize("reader", sorted({harness.reader for harness in HARNESSES}))
def test_a_reader_has_a_file_of_tests_that_reads_a_log(reader):
    files = [path for path in Path(__file__).parent.glob("test_*.py") if reader.split("_")[0] in path.stem.split("_")]
    assert any(map(_reads_a_log, files)), f"Add tests/ingest/test_{reader}.py."


def _reads_a_log(path: Path) -> bool:
    functions = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))
    tests = (one for one in functions if one.name.startswith("test_"))
    return any(FOLDERS & {one.arg for one in test.args.args} for test in tests)


def test_every_reason_of_an_inexact_prompt_is_explained_and_used():
    texts = [path.read_text() for path in (PACKAGE / "ingest").rglob("*.py") if path.name != "reasons.py"]
    assert {reason for reason in PREFIX_REASONS if not any(f'"{reason}"' in text for text in texts)} == set()


@pytest.mark.parametrize("name", [name for name, harness in LOG_FILES.items() if harness != "composer_hub"])
def test_a_reader_gives_only_reasons_that_are_explained(name, logs, read):
    sessions, _ = read(logs / name)
    reasons = {step.prefix_reason for session in sessions for step in session.trace.steps}
    assert {one for reason in reasons for one in reason.split("; ")} <= {"", *PREFIX_REASONS}


@pytest.mark.parametrize("name", [name for name, harness in LOG_FILES.items() if harness != "composer_hub"])
def test_every_step_of_a_reader_is_sound_and_has_the_key_of_its_call(name, logs, read, sound):
    sessions, _ = read(logs / name)
    for session in sessions:
        sound(session)
        assert all(row.step_id and row.trace_id and row.source for row in step_rows(session.trace))
        assert "reader" not in session.trace.provenance  # `source` names it, and the package has one version
    assert all(key for session in sessions for key in session.keys) == (name not in WITHOUT_KEYS), (
        "A reader gives each step the id that the log itself has of its message (`key`). If the log has none, name the "
        "file in WITHOUT_KEYS, with the reason."
    )


def test_the_names_of_harnesses_are_unique_and_an_unknown_one_is_answered_with_all():
    assert len({harness.name for harness in HARNESSES}) == len(HARNESSES)
    with pytest.raises(UsageError, match=f"Known formats: {', '.join(harness.name for harness in HARNESSES)}"):
        harness_named("clade_code")


@pytest.mark.parametrize("size", [512, 2048, 16384, HEAD_BYTES])
@pytest.mark.parametrize("name", LOG_FILES)
def test_a_log_is_never_recognized_as_another_format(logs, name, size):
    # A published trace is also a row of chat messages, so the order of the records decides.
    also = ["chat_rows"] if LOG_FILES[name] == "composer_hub" else []
    recognized = claims(logs / name, size)
    assert recognized in ([], [LOG_FILES[name], *also])
    assert recognized or size < HEAD_BYTES


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_is_recognized_as_its_own_format_only(samples, name):
    assert claims(samples / name) == [SAMPLES[name]]


@pytest.mark.parametrize(
    ("source", "lasts"),
    [
        ("codex", False), ("Codex-CLI", False), ("gemini_cli", False), ("mini", False), ("mini-swe-agent", False),
        ("claude_code", True), ("openhands", True), ("pixel", True), ("", True),
    ],
)  # fmt: skip
def test_a_cd_lasts_unless_the_harness_starts_a_shell_per_call(source, lasts):
    assert keeps_cwd(source) is lasts


@pytest.mark.parametrize("data", [
    b"", b" \n\t", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj", bytes(range(256)) * 40, zip_of("word/document.xml"),
    zip_of("META-INF/MANIFEST.MF"), b"PAR1" + b"\x00" * 64 + b"PAR1", b"{}", b"[]", b"[1, 2, 3]", b"null",
    b'{"name": "composer-hub", "version": "0.1.0", "messages": "none"}', b'[{"role": "user"}]',
    b'{"type": "object", "properties": {"trajectory": {"type": "array"}}}',
    b"# A heading\n\n#### a small heading\n\n> a quote\n", b"{" * 5000, b"[" * 5000, b'{"a": ' * 3000, b'"' * 5000,
    b"\xff\xfe{\x00}\x00",
], ids=lambda data: repr(data[:24]))  # fmt: skip
def test_other_files_are_not_recognized(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    assert sniff(data[:HEAD_BYTES], path) is None


@pytest.mark.parametrize("harness", [one for one in HARNESSES if one.folders], ids=lambda one: one.name)
def test_a_harness_keeps_its_sessions_in_the_home_folder_of_who_runs_it(harness: Harness, tmp_path: Path) -> None:
    folders = [folder for folder, owner in session_folders({}, tmp_path).items() if owner is harness]
    assert len(folders) == len(harness.folders)
    assert all(folder.is_relative_to(tmp_path) and "$" not in str(folder) for folder in folders)


def test_an_environment_variable_moves_a_folder_of_sessions(tmp_path: Path) -> None:
    moved = session_folders({"CODEX_HOME": "/srv/codex"}, tmp_path)
    assert moved[Path("/srv/codex/sessions")].name == "codex"
    assert tmp_path / ".codex/sessions" not in moved
