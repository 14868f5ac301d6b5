"""Files that are cut, mixed and broken at random: every reader counts what is wrong and none raises."""

from __future__ import annotations

import random

import pytest

from composer_hub.ingest.report import FileReport
from composer_hub.ingest.sources import source_named
from composer_hub.records import prompt_of

FILES = {
    "claude_code": ["parallel", "rewind", "compaction", "inline_sidechain", "broken"],
    "codex": ["rollout-2026-06-01T10-00-00-codex-1"],
    "pi": ["v3_tree", "v1_compaction"],
}
CASES = [(source, name) for source, names in FILES.items() for name in names]


def cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data))]


def shuffled(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    dice.shuffle(lines)
    return b"".join(lines)


def thinned(data: bytes, dice: random.Random) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if dice.random() < 0.8)


def noisy(data: bytes, dice: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(dice.randrange(1, 40)):
        broken[dice.randrange(len(broken))] = dice.randrange(256)
    return bytes(broken)


def retyped(data: bytes, dice: random.Random) -> bytes:
    """Put values of other types where texts, lists and objects were."""
    values = [b"null", b"7", b"[]", b"{}", b'""', b"true", b"[[1]]", b'{"a":null}', b'"\\ud800"', b"1e999", b"-0.5"]
    parts = data.split(b":")
    for _ in range(dice.randrange(1, 12)):
        at = dice.randrange(1, len(parts))
        for end in (b",", b"}"):
            if end in parts[at]:
                parts[at] = dice.choice(values) + end + parts[at].split(end, 1)[1]
                break
    return b":".join(parts)


def doubled(data: bytes, dice: random.Random) -> bytes:
    return data + shuffled(data, dice)


@pytest.mark.parametrize(
    "damage", [cut, shuffled, thinned, noisy, retyped, doubled], ids=lambda damage: damage.__name__
)
@pytest.mark.parametrize(("source", "name"), CASES, ids=[f"{source}-{name}" for source, name in CASES])
def test_a_damaged_file_is_read_as_far_as_it_goes(damage, source, name, written, tmp_path):
    data = (written / source / f"{name}.jsonl").read_bytes()
    dice = random.Random(f"{damage.__name__}{name}")
    path = tmp_path / "damaged.jsonl"
    for _ in range(40):
        path.write_bytes(damage(data, dice))
        report = FileReport(str(path))
        for session in source_named(source).read(path, report):
            for step in session.trace.steps:
                prompt = prompt_of(session.trace, step)
                asked = {call.call_id for message in prompt for call in message.tool_calls}
                assert all(m.tool_call_id in asked for m in prompt if m.role == "tool")
                assert max(stop for _, stop in step.prompt) <= step.action
            assert all("\ud800" not in message.content for message in session.trace.messages)
        assert report.counts["corrupt"] == report.num_problems
