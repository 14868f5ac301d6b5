"""Packed session files, compressed or in UTF-16: read like what is in them, and never a reason for a run to end."""

from __future__ import annotations

import codecs
import gzip
import json

import pyarrow as pa
import pytest

from composer_hub.harnesses import HARNESSES
from composer_hub.ingest import files
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.reading import Reading


@pytest.fixture
def rollout(logs):
    return logs / "codex/rollout-2026-06-01T10-00-00-codex-1.jsonl"


def zstd(data):
    return pa.Codec("zstd").compress(data, asbytes=True)


def run(*paths, **options):
    ingest = Reading(paths, ReadOptions(workers=1, **options))
    return list(ingest), ingest


@pytest.mark.parametrize(("suffix", "pack"), [(".zst", zstd), (".gz", gzip.compress)])
def test_a_compressed_file_gives_the_traces_of_the_plain_one(suffix, pack, rollout, tmp_path):
    packed = tmp_path / (rollout.name + suffix)
    packed.write_bytes(pack(rollout.read_bytes()))
    (plain,), _ = run(rollout)
    (same,), _ = run(packed)
    assert same.trace.trace_id == plain.trace.trace_id
    assert same.trace.messages == plain.trace.messages
    assert same.keys == plain.keys
    again, ingest = run(packed, manifest=run(packed)[1].manifest)
    assert (again, ingest.report.counts["unchanged"]) == ([], 1)


def test_a_compressed_copy_beside_the_plain_file_adds_nothing(rollout, tmp_path):
    (tmp_path / rollout.name).write_bytes(rollout.read_bytes())
    (tmp_path / f"{rollout.name}.zst").write_bytes(zstd(rollout.read_bytes()))
    sessions, ingest = run(tmp_path)
    assert len(sessions) == 1
    assert ingest.report.counts["duplicate_traces"] == 1


@pytest.mark.parametrize("pack", [zstd, gzip.compress])
def test_a_half_written_archive_is_a_problem_and_other_files_are_read(pack, rollout, tmp_path):
    noise = "".join(
        json.dumps({"type": "event_msg", "payload": {"type": "warning", "n": n}}) + "\n" for n in range(20000)
    )
    data = pack(rollout.read_bytes() + noise.encode())
    (tmp_path / "cut.jsonl.x").write_bytes(data[: len(data) - 40])
    (tmp_path / rollout.name).write_bytes(rollout.read_bytes())
    sessions, ingest = run(tmp_path)
    assert len(sessions) == 1
    (problem,) = ingest.report.problems
    assert str(problem).startswith(f"{tmp_path / 'cut.jsonl.x'} cannot be unpacked")
    assert "wait for it to end" in str(problem)


def test_a_small_archive_that_was_cut_is_a_problem(rollout, tmp_path):
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(rollout.read_bytes())[:-40])
    sessions, ingest = run(tmp_path / "cut.jsonl.gz")
    assert not sessions
    (problem,) = ingest.report.problems
    assert "cannot be unpacked" in str(problem)


def test_other_files_stay_unrecognised_when_compressed(tmp_path):
    (tmp_path / "notes.gz").write_bytes(gzip.compress(b"just words\n"))
    (tmp_path / "noise.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(50))
    (tmp_path / "noise.gz").write_bytes(b"\x1f\x8b" + bytes(50))
    sessions, ingest = run(tmp_path)
    assert (sessions, ingest.report.counts["unrecognised"]) == ([], 3)


def test_an_archive_that_unpacks_to_too_much_is_refused(rollout, tmp_path, monkeypatch):
    packed = tmp_path / f"{rollout.name}.gz"
    packed.write_bytes(gzip.compress(rollout.read_bytes()))
    monkeypatch.setattr(files, "MAX_UNPACKED", 100)
    sessions, ingest = run(packed)
    assert not sessions
    assert "unpacks to more than" in str(ingest.report.problems[0])


UTF_16 = {
    "PowerShell's": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "big endian": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "without a mark": lambda text: text.encode("utf-16-le"),
    "big endian without a mark": lambda text: text.encode("utf-16-be"),
}


@pytest.mark.parametrize("how", UTF_16)
@pytest.mark.parametrize("harness", [harness.name for harness in HARNESSES])
def test_sessions_in_utf_16_are_those_in_utf_8(harness, how, logs, tmp_path):
    for number, path in enumerate(sorted(path for path in (logs / harness).rglob("*") if path.is_file())):
        try:
            text = path.read_text(encoding="utf-8").replace("\n", "\r\n")
        except UnicodeDecodeError:
            continue  # a database, a table or an archive
        seen = []
        for kind, data in (("plain", text.encode()), ("changed", UTF_16[how](text))):
            copy = tmp_path / kind / str(number) / path.name  # alone, since files beside it are not looked for
            copy.parent.mkdir(parents=True)
            copy.write_bytes(data)
            sessions, ingest = run(copy)
            seen.append(([one.trace.messages for one in sessions], ingest.report.counts["unrecognised"]))
        assert seen[0] == seen[1], path


def test_half_a_character_at_the_end_of_a_file_costs_no_line(rollout, tmp_path):
    path = tmp_path / rollout.name
    path.write_bytes(UTF_16["PowerShell's"](rollout.read_text()) + b"{")
    assert [one.trace.messages for one in run(path)[0]] == [one.trace.messages for one in run(rollout)[0]]
