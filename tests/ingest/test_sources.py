"""Every format is told from all others by the first bytes of a file."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from composer_hub.ingest.sources import HEAD_BYTES, SOURCES, sniff, source_named

LOGS = {
    "aider.chat.history.md": "aider",
    "atif_1.7.json": "atif",
    "cline_api_conversation_history.json": "cline",
    "cline_session.messages.json": "cline",
    "gemini_0.40.jsonl": "gemini",
    "hf_native.jsonl": "hf_native",
    "mini_1.1_responses.traj.json": "mini_swe_agent",
    "mini_1.1_toolcalls.traj.json": "mini_swe_agent",
    "nebius_swe_agent.jsonl": "chat_rows",
    "openhands_v0_events.json": "openhands_v0",
    "openhands_v1_events.jsonl": "openhands_v1",
    "swe_agent_1x.traj": "swe_agent",
    "swe_gym_openhands.jsonl": "chat_rows",
    "swe_rebench_openhands.jsonl": "chat_rows",
}
SAMPLES = {
    "aider/chat-history-a.md": "aider",
    "gemini/gemini-chat-2.json": "gemini",
    "inspect/popularity.eval": "inspect",
    "mini/local.traj.json": "mini_swe_agent",
    "openhands/v0-resolver-output.jsonl": "openhands_v0",
    "openhands/v1-events.jsonl": "openhands_v1",
    "swe_agent/ctf-i_got_id_demo.traj": "swe_agent",
    "swe_smith/swe-smith-sample-rows.json": "chat_rows",
}
OTHERS = (
    "claude_code/cc-2.1-errors-mixed.jsonl",
    "claude_code/cc-2.1.128.jsonl",
    "codex/rollout-0.12x-a.jsonl",
    "pi/pi-large-session.jsonl",
    "schema_inventory/claude-all-record-types-2.1.161.jsonl",
    "schema_inventory/codex-all-record-types-0.149.jsonl",
)
FIRST_THREE = ("claude_code", "codex", "pi")


def claims(path: Path, size: int = HEAD_BYTES) -> list[str]:
    head = path.read_bytes()[:size]
    return [source.name for source in SOURCES if source.sniff(head, path)]


def zip_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "{}")  # no clock in it: test ids are made of these bytes
    return buffer.getvalue()


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_sniffed_as_its_own_format_and_no_other(logs, name):
    assert claims(logs / name) == [LOGS[name]]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_real_file_is_sniffed_as_its_own_format_and_no_other(samples, name):
    assert claims(samples / name) == [SAMPLES[name]]


@pytest.mark.parametrize("name", OTHERS)
def test_files_of_the_tree_formats_are_claimed_by_none_of_the_others(samples, name):
    assert set(claims(samples / name)) <= set(FIRST_THREE)


@pytest.mark.parametrize("size", [512, 2048, 16384])
@pytest.mark.parametrize("name", LOGS)
def test_a_head_cut_anywhere_is_never_taken_for_another_format(logs, name, size):
    assert set(claims(logs / name, size)) <= {LOGS[name]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n\t",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj",
        bytes(range(256)) * 40,
        zip_of("word/document.xml"),
        zip_of("META-INF/MANIFEST.MF"),
        b"PAR1" + b"\x00" * 64 + b"PAR1",
        b"{}",
        b"[]",
        b"[1, 2, 3]",
        b"null",
        b'{"name": "composer-hub", "version": "0.1.0", "messages": "none"}',
        b'[{"role": "user"}]',
        b'{"type": "object", "properties": {"trajectory": {"type": "array"}}}',
        b"# A heading\n\n#### a small heading\n\n> a quote\n",
        b"{" * 5000,
        b"[" * 5000,
        b'{"a": ' * 3000,
        b'"' * 5000,
        b"\xff\xfe{\x00}\x00",
    ],
    ids=lambda data: repr(data[:24]),
)
def test_what_is_no_session_is_claimed_by_no_format(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    assert sniff(data[:HEAD_BYTES], path) is None


def test_every_source_says_what_it_gives_and_lacks_and_is_found_by_name():
    own = [source for source in SOURCES if source.name not in FIRST_THREE]
    assert len(own) == 12
    for source in own:
        assert source.gives.endswith(".")
        assert source.lacks.endswith(".")
        assert source_named(source.name) is source
