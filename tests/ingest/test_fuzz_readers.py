"""Whatever happened to a log, its reader counts problems and goes on: no traceback, and what comes out is sound."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from composer_hub.ingest.report import FileReport, SessionError
from composer_hub.ingest.sources import source_named

STABLE = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
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
JSON_LOGS = [name for name in LOGS if "json" in name or "traj" in name]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**19) | st.floats() | st.text(max_size=6) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def read_all(name: str, path: Path, data: bytes, sound) -> None:
    """Read bytes as a format; the only way out besides sessions is the one sentence of a SessionError."""
    path.write_bytes(data)
    report = FileReport(str(path))
    with contextlib.suppress(SessionError):
        for session in source_named(name).read(path, report):
            sound(session)


def inspect_log(samples_of: dict) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        header = {"eval": {"model": "openai/gpt-5", "task": "t", "run_id": "r"}}
        archive.writestr("header.json", json.dumps(header))
        for name, sample in samples_of.items():
            archive.writestr(f"samples/{name}_epoch_1.json", json.dumps(sample))
    return buffer.getvalue()


SAMPLE = {
    "id": "s1",
    "epoch": 1,
    "attachments": {"abc": "a long text"},
    "message_pool": [{"role": "system", "content": "sys"}, {"role": "user", "content": "attachment://abc"}],
    "scores": {"match": {"value": "C"}},
    "messages": [
        {"role": "tool", "tool_call_id": "c1", "content": "", "error": {"type": "timeout", "message": "slow"}}
    ],
    "events": [
        {
            "event": "model",
            "model": "openai/gpt-5",
            "input": [],
            "input_refs": [[0, 2]],
            "tools": [{"name": "bash", "description": "run", "parameters": {"type": "object", "properties": {}}}],
            "output": {
                "choices": [
                    {
                        "message": {
                            "role": "assistant",
                            "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "go"}],
                            "tool_calls": [{"id": "c1", "function": "bash", "arguments": {"cmd": "ls"}}],
                        }
                    }
                ]
            },
        }
    ],
}


@pytest.mark.parametrize("name", LOGS)
@STABLE
@given(cut=st.floats(0, 1))
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(logs, tmp_path, sound, name, cut):
    data = (logs / name).read_bytes()
    read_all(LOGS[name], tmp_path / name, data[: int(len(data) * cut)], sound)


@pytest.mark.parametrize("name", LOGS)
@STABLE
@given(seed=st.integers(0, 2**32))
def test_a_log_with_bytes_changed_is_read_without_a_traceback(logs, tmp_path, sound, name, seed):
    data, chance = bytearray((logs / name).read_bytes()), random.Random(seed)
    for _ in range(chance.randint(1, 12)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    read_all(LOGS[name], tmp_path / name, bytes(data), sound)


@pytest.mark.parametrize("name", LOGS)
@STABLE
@given(seed=st.integers(0, 2**32))
def test_a_log_with_its_records_shuffled_or_doubled_stays_sound(logs, tmp_path, sound, name, seed):
    chance, text = random.Random(seed), (logs / name).read_text()
    if name.endswith(("jsonl", "md")):
        lines = text.splitlines(keepends=True)
        read_all(LOGS[name], tmp_path / name, "".join(chance.choices(lines, k=len(lines))).encode(), sound)
        return
    document = json.loads(text)
    for found in lists_in(document):
        found[:] = chance.choices(found, k=len(found))
    read_all(LOGS[name], tmp_path / name, json.dumps(document).encode(), sound)


@pytest.mark.parametrize("name", JSON_LOGS)
@settings(STABLE, max_examples=60)
@given(data=st.data())
def test_wrong_types_in_any_field_are_survived(logs, tmp_path, sound, name, data):
    text = (logs / name).read_text()
    if name.endswith("jsonl"):
        records = [mutated(json.loads(line), data) for line in text.splitlines()]
        body = "\n".join(json.dumps(record) for record in records)
    else:
        body = json.dumps(mutated(json.loads(text), data))
    read_all(LOGS[name], tmp_path / name, body.encode("utf-8", "replace"), sound)


@settings(STABLE, max_examples=80)
@given(data=st.data())
def test_wrong_types_in_any_field_of_an_inspect_log_are_survived(tmp_path, sound, data):
    read_all("inspect", tmp_path / "a.eval", inspect_log({"s1": mutated(SAMPLE, data)}), sound)


@STABLE
@given(seed=st.integers(0, 2**32))
def test_a_broken_inspect_archive_is_survived(tmp_path, sound, seed):
    data, chance = bytearray(inspect_log({"s1": SAMPLE, "s2": SAMPLE})), random.Random(seed)
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    read_all("inspect", tmp_path / "a.eval", bytes(data[: chance.randint(1, len(data))]), sound)


def lists_in(value):
    """Yield every list of a JSON value that holds something."""
    if isinstance(value, list) and value:
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from lists_in(inner)


def mutated(document, data):
    """Return a copy in which a few values, keys and all, were replaced by anything or taken away."""
    copy = json.loads(json.dumps(document))
    for _ in range(data.draw(st.integers(1, 3))):
        places = list(places_in(copy))
        if not places:
            return copy
        holder, key = places[data.draw(st.integers(0, len(places) - 1))]
        if isinstance(holder, dict) and data.draw(st.booleans()) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(ANYTHING)
    return copy


def places_in(value):
    """Yield (container, key) of every value inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from places_in(inner)
