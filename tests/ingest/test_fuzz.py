"""A damaged log never ends a run: its reader counts the problems, and the sessions that come out are sound."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from composer_hub.harnesses import HARNESSES
from composer_hub.ingest.report import NOT_READ, FileReport, SessionError
from composer_hub.ingest.sources import source_named
from composer_hub.records import prompt_of
from tests.plugins.sessions import LOG_FILES
from tests.quick import cases

# A broken reader fails in seconds: a smaller log with the same failure would take minutes to find.
AS_FOUND = {"suppress_health_check": [HealthCheck.function_scoped_fixture], "phases": [Phase.explicit, Phase.generate]}
STABLE = cases(15, **AS_FOUND)
# Archives are damaged below; rows of composer_hub in test_published_traces.py.
TREES = [
    harness.name
    for harness in HARNESSES
    if hasattr(importlib.import_module(f"composer_hub.ingest.readers.{harness.reader}"), "build_session")
]
TEXT_LOGS = [
    name
    for name, harness in LOG_FILES.items()
    if harness not in ("inspect", "composer_hub") and not name.endswith("broken.jsonl")
]
JSON_LOGS = [name for name in TEXT_LOGS if not name.endswith(".md")]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**19) | st.floats() | st.text(max_size=6) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def read_all(name: str, path: Path, data: bytes, sound) -> None:
    """Read bytes as a format; the only error that a reader may raise is a SessionError."""
    path.write_bytes(data)
    report = FileReport(str(path))
    with contextlib.suppress(SessionError):
        for session in source_named(name).read(path, report):
            if name not in TREES:
                sound(session)
                continue
            for step in session.trace.steps:
                assert max(stop for _, stop in step.prompt) <= step.action
                prompt = prompt_of(session.trace, step)
                asked = {call.call_id for message in prompt for call in message.tool_calls}
                assert all(m.tool_call_id in asked for m in prompt if m.role == "tool")
            assert all("\ud800" not in message.content for message in session.trace.messages)


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


@pytest.mark.parametrize("name", TEXT_LOGS)
@STABLE
@given(cut=st.floats(0, 1))
def test_a_log_cut_anywhere_is_read_as_far_as_it_goes(logs, tmp_path, sound, name, cut):
    data = (logs / name).read_bytes()
    read_all(LOG_FILES[name], tmp_path / Path(name).name, data[: int(len(data) * cut)], sound)


@pytest.mark.parametrize("name", TEXT_LOGS)
@STABLE
@given(seed=st.integers(0, 2**32))
def test_a_log_with_bytes_changed_is_read_without_a_traceback(logs, tmp_path, sound, name, seed):
    data, chance = bytearray((logs / name).read_bytes()), random.Random(seed)
    for _ in range(chance.randint(1, 12)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    read_all(LOG_FILES[name], tmp_path / Path(name).name, bytes(data), sound)


@pytest.mark.parametrize("name", TEXT_LOGS)
@STABLE
@given(seed=st.integers(0, 2**32))
def test_a_log_with_records_shuffled_doubled_or_lost_stays_sound(logs, tmp_path, sound, name, seed):
    chance, text = random.Random(seed), (logs / name).read_text()
    if name.endswith(("jsonl", "md")):
        lines = text.splitlines(keepends=True)
        read_all(
            LOG_FILES[name], tmp_path / Path(name).name, "".join(chance.choices(lines, k=len(lines))).encode(), sound
        )
        return
    document = json.loads(text)
    for found in lists_in(document):
        found[:] = chance.choices(found, k=len(found))
    read_all(LOG_FILES[name], tmp_path / Path(name).name, json.dumps(document).encode(), sound)


@pytest.mark.parametrize("name", JSON_LOGS)
@cases(30, **AS_FOUND)
@given(data=st.data())
def test_wrong_types_in_any_field_are_survived(logs, tmp_path, sound, name, data):
    text = (logs / name).read_text()
    if name.endswith("jsonl"):
        records = [mutated(json.loads(line), data) for line in text.splitlines()]
        body = "\n".join(json.dumps(record) for record in records)
    else:
        body = json.dumps(mutated(json.loads(text), data))
    read_all(LOG_FILES[name], tmp_path / Path(name).name, body.encode("utf-8", "replace"), sound)


@cases(60, **AS_FOUND)
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


ROWS = {"chat_rows", "hermes", "hf_native"}  # a line is a session with its messages
UNTYPED = {"swe_agent"}  # every entry of its trajectory is a turn, and none names a type
STRANGER = {"type": "context-injection", "kind": "NewEvent", "role": "oracle", "source": "oracle",
            "info": {"role": "oracle"}, "message": {"content": "words that the model read"}}  # fmt: skip


def with_strangers(name: str, text: str) -> str:
    """Insert a record of an unknown type after the first record, in rows after the first message of each."""
    lines = text.splitlines()
    if name.endswith("jsonl") and LOG_FILES[name] not in ROWS:
        return "\n".join([lines[0], json.dumps(STRANGER), *lines[1:]])
    documents = [json.loads(line) for line in (lines if name.endswith("jsonl") else [text])]
    for document in documents:
        lists = (found for found in lists_in(document) if len(found) > 2 and isinstance(found[0], dict))
        next(lists, []).insert(1, STRANGER)
    return "\n".join(map(json.dumps, documents))


@pytest.mark.parametrize("name", [name for name in JSON_LOGS if LOG_FILES[name] not in UNTYPED])
def test_a_record_of_an_unknown_type_is_counted_and_costs_the_prompts_below_it(logs, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(with_strangers(name, (logs / name).read_text()))
    report = FileReport()
    sessions = list(source_named(LOG_FILES[name]).read(path, report))
    assert report.counts["unknown"]
    reasons = [step.prefix_reason for session in sessions for step in session.trace.steps]
    assert any(NOT_READ in reason for reason in reasons), reasons


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
