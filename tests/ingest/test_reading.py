"""From paths to sessions: what is found, what is skipped, what comes twice, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import zipfile

import pytest

from composer_hub.exits import UsageError
from composer_hub.harnesses import HARNESSES
from composer_hub.ingest.dataset import TraceCounts, config_features, numbers_of
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.reading import Reading
from composer_hub.ingest.report import MAX_PROBLEMS, FileReport, SessionError
from composer_hub.records import StepRow, Trace, from_row, step_row, to_row
from composer_hub.session import Session


@dataclasses.dataclass(frozen=True)
class Stamp:
    """A transform as ingest takes it: it can be pickled and does not care where it runs."""

    word: str

    def __call__(self, session: Session) -> Session:
        return session.with_trace(dataclasses.replace(session.trace, redaction=self.word))


class Refuse:
    def __call__(self, session: Session) -> Session:
        raise ValueError("no redactor")


def drop_all(session: Session) -> None:
    return None


class Killer:
    """A transform that takes its process with it."""

    def __call__(self, session: Session) -> Session:
        if session.trace.session_id.startswith("2222"):
            os._exit(9)
        return session


@pytest.fixture
def folder(logs, tmp_path):
    """Return a folder of stored sessions, without printed streams, and without the sessions that only change folder."""
    left_out = shutil.ignore_patterns("stream.jsonl", "exec.jsonl", "*cd.jsonl", "*codex-2.jsonl")
    for name in ("claude_code", "codex", "pi"):
        shutil.copytree(logs / name, tmp_path / "logs" / name, ignore=left_out)
    return tmp_path / "logs"


def run(*paths, **options):
    ingest = Reading(paths, ReadOptions(**options))
    return list(ingest), ingest


def test_a_folder_gives_every_session_in_it_the_same_way_each_time(folder):
    first, ingest = run(folder)
    second, _ = run(folder)
    assert first == second
    assert ingest.report.counts["read"] == 10
    assert ingest.report.counts["unrecognised"] == 1  # the .meta.json beside the subagent
    assert len({session.trace.trace_id for session in first}) == len(first) == 11


def test_worker_processes_give_what_one_process_gives(folder):
    alone, here = run(folder, workers=1, transform=Stamp("r1"))
    together, there = run(folder, workers=2, transform=Stamp("r1"))
    assert together == alone
    assert {session.trace.redaction for session in together} == {"r1"}
    assert there.report.counts == here.report.counts
    assert there.manifest == here.manifest


def test_a_transform_may_drop_a_session(folder):
    assert run(folder, transform=drop_all)[0] == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_transform_that_fails_ends_the_run(folder, workers):
    with pytest.raises(ValueError, match="no redactor"):
        run(folder, workers=workers, transform=Refuse())


def test_a_file_that_kills_its_process_costs_only_itself(folder):
    sessions, ingest = run(folder, workers=2, transform=Killer())
    assert len(sessions) == 10
    (why,) = [problem.message for problem in ingest.report.problems if "ended the process" in problem.message]
    assert why.endswith("the last time with exit code 9.")
    assert ingest.report.counts["unreadable"] == 1


def test_a_second_run_reads_only_what_changed(folder):
    sessions, first = run(folder)
    again, second = run(folder, manifest=first.manifest)
    assert again == []
    assert second.report.counts["unchanged"] == 10
    assert second.manifest == first.manifest
    grown = folder / "claude_code/rewind.jsonl"
    lines = grown.read_text().splitlines()
    last = json.loads(lines[-1])
    more = {**last, "uuid": "a6", "parentUuid": last["uuid"], "message": {**last["message"], "id": "msg_16"}}
    grown.write_text("\n".join([*lines, json.dumps(more)]) + "\n")
    (changed,), third = run(folder, manifest=first.manifest)
    assert len(changed.trace.steps) == 6
    assert changed.trace.trace_id in {session.trace.trace_id for session in sessions}
    assert third.report.counts["unchanged"] == 9


def test_a_run_that_reads_little_reports_the_whole_version(folder):
    _, first = run(folder)
    grown = folder / "claude_code/rewind.jsonl"
    grown.write_text(grown.read_text() + "no json\n")
    gone = next(path for path, entry in first.manifest.items() if "broken" in path and entry["traces"])
    os.unlink(gone)
    _, second = run(folder, manifest=first.manifest)
    assert (second.report.counts["read"], second.report.counts["unchanged"]) == (1, 8)
    assert second.manifest.keys() == first.manifest.keys(), "the version still holds what the lost file gave"
    before, after = first.version_report(), second.version_report()
    assert after.unknown_types == before.unknown_types == {"never-seen-before": 1}
    about_files = ("files", "read", "unchanged")
    differing = {
        name: after.counts[name] - before.counts[name]
        for name in before.counts | after.counts
        if after.counts[name] != before.counts[name] and name not in about_files
    }
    assert differing == {"corrupt": 1, "lines": 1, "bytes": 8}
    assert after.num_problems == before.num_problems + 1
    # A file that only has another name now is not counted twice.
    grown.rename(grown.with_name("renamed.jsonl"))
    _, third = run(folder, manifest=second.manifest)
    assert third.version_report().counts["lines"] == after.counts["lines"]


def test_a_file_is_read_again_when_a_trace_of_it_is_denied_and_when_it_no_longer_is(folder):
    sessions, first = run(folder)
    denied = frozenset([sessions[0].trace.trace_id])
    _, second = run(folder, manifest=first.manifest, denied=denied)
    assert second.report.counts["denied"] >= 1
    held = [entry for entry in second.manifest.values() if entry["denied"]]
    assert not denied & {trace for entry in held for trace in entry["traces"]}
    _, third = run(folder, manifest=second.manifest, denied=denied)
    assert (third.report.counts["read"], third.report.counts["denied"]) == (0, 0)
    assert third.version_report().counts["denied"] == second.report.counts["denied"]
    back, _ = run(folder, manifest=third.manifest)
    assert denied <= {session.trace.trace_id for session in back}


def test_another_version_reads_all_files_again(folder):
    sessions, first = run(folder, version="rules-1")
    again, _ = run(folder, version="rules-2", manifest=first.manifest)
    assert len(again) == len(sessions)


def test_a_resumed_session_gives_only_its_new_steps_beside_the_one_it_copies(folder):
    old = folder / "claude_code/rewind.jsonl"
    sid = "77777777-7777-4777-8777-777777777777"
    new = old.with_name(f"{sid}.jsonl")
    text = old.read_text().replace("22222222-2222-4222-8222-222222222222", sid)
    last = json.loads(text.splitlines()[-1])
    more = {**last, "uuid": "a6", "parentUuid": last["uuid"], "message": {**last["message"], "id": "msg_16"}}
    new.write_text(text + json.dumps(more) + "\n")
    sessions, ingest = run(old, new)
    # The longer file tells all; the one it continues has nothing to add.
    assert [(s.trace.session_id, len(s.trace.steps)) for s in sessions] == [(sid, 6)]
    assert (ingest.report.counts["duplicate_steps"], ingest.report.counts["duplicate_traces"]) == (5, 1)


def test_older_copies_of_a_session_whose_steps_have_no_keys_have_ids_of_their_own(logs, tmp_path):
    lines = (logs / "goose" / "20260708_1.jsonl").read_text().splitlines(keepends=True)
    for age in range(3):
        copy = tmp_path / f"copy-{age}" / "20260708_1.jsonl"
        copy.parent.mkdir()
        copy.write_text("".join(lines[: len(lines) - age]))
    sessions, _ = run(tmp_path)
    steps = [step.step_id for session in sessions for step in session.trace.steps]
    assert len({session.trace.trace_id for session in sessions}) == len(sessions) == 3
    assert len(set(steps)) == len(steps)


def test_the_same_file_under_two_names_is_read_once(folder):
    path = folder / "claude_code/rewind.jsonl"
    (folder / "link.jsonl").symlink_to(path)
    sessions, ingest = run(path, folder / "link.jsonl", path.parent / "." / path.name)
    assert len(sessions) == 1
    assert ingest.report.counts["files"] == 1


def test_a_circle_of_links_ends(folder):
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    assert len(run(folder)[0]) == 11


def test_denied_traces_do_not_come_out(folder):
    sessions, _ = run(folder)
    denied = sessions[0].trace.trace_id
    rest, ingest = run(folder, denied=frozenset([denied]))
    assert denied not in {session.trace.trace_id for session in rest}
    assert ingest.report.counts["denied"] == 1


def test_the_subagents_of_a_denied_trace_do_not_come_out_either(folder):
    sessions, _ = run(folder)
    child = next(session.trace for session in sessions if session.trace.parent_trace_id)
    rest, _ = run(folder, denied=frozenset([child.parent_trace_id]))
    assert not {child.trace_id, child.parent_trace_id} & {session.trace.trace_id for session in rest}


def test_the_second_file_of_a_session_is_denied_under_the_id_it_came_out_with(logs, tmp_path):
    lines = (logs / "claude_code/rewind.jsonl").read_text().splitlines()
    other = json.loads(lines[-1])
    other["message"]["id"], other["uuid"] = "msg_other_way", "other-way"
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.jsonl").write_text("\n".join([*lines[:-1], json.dumps(other)]))
    sessions, _ = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    ids = [session.trace.trace_id for session in sessions]
    assert len(ids) == 2
    rest, _ = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", denied=frozenset(ids[1:]))
    assert [session.trace.trace_id for session in rest] == ids[:1]


@pytest.mark.parametrize(("name", "content", "count", "why"), [
    ("empty.jsonl", b"", "empty", "is empty"),
    ("binary.bin", bytes(range(256)) * 300, "unrecognised", "is in no known session format"),
    ("blank.jsonl", b"\n\n\n", "unrecognised", "is in no known session format"),
    ("deep.jsonl", b'{"parentUuid":' + b"[" * 5000 + b"]" * 5000 + b"}\n", "unrecognised", "is in no known session"),
])  # fmt: skip
def test_a_file_that_is_not_a_session_is_counted(name, content, count, why, tmp_path):
    (tmp_path / name).write_bytes(content)
    sessions, ingest = run(tmp_path / name)
    assert sessions == []
    assert ingest.report.counts[count] == 1
    with pytest.raises(SessionError, match=rf"No session could be read .*{name} {why}"):
        ingest.raise_if_nothing_read()


def test_a_pipe_that_is_named_is_a_problem_and_one_in_a_folder_is_left_out(folder, tmp_path):
    pipe, database = tmp_path / "pipe", folder / "claude_code/rewind.jsonl-wal"
    for path in (pipe, folder / "pipe.jsonl", database):
        os.mkfifo(path)
    sessions, ingest = run(pipe, folder, "/dev/zero")
    assert len(sessions) == 11
    assert ingest.report.counts["unreadable"] == 2
    assert [str(problem) for problem in ingest.report.problems][:2] == [
        f"{pipe} is a pipe, not a file. Write its content to a file and name that.",
        "/dev/zero is a device, not a file. Write its content to a file and name that.",
    ]


def test_pipes_beside_a_session_are_not_waited_for(logs, tmp_path):
    """Readers open files beside a session by their names: replace each file by a pipe, one after the other."""
    copy = tmp_path / "logs"
    shutil.copytree(logs, copy)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        others = [other for other in path.parent.rglob("*") if other.is_file() and other != path]
        if not others:
            continue
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        run(path.parent, workers=1)
        path.unlink()
        path.write_bytes(content)


@pytest.mark.parametrize("kind", ["stored zip", "zip", "tar", "gztar"])
def test_an_archive_of_sessions_is_refused_and_not_read_as_text(kind, folder, tmp_path):
    path = tmp_path / "old.jsonl"
    if kind == "stored zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.write(folder / "claude_code/rewind.jsonl")
    else:
        path = shutil.make_archive(f"{tmp_path / 'old'}", kind, folder / "claude_code")
    sessions, ingest = run(path)
    assert (sessions, ingest.report.counts["unrecognised"]) == ([], 1)
    assert "archive. Unpack it" in f"{ingest.report.problems[0]}"


def test_a_file_of_a_known_format_without_a_step_is_a_problem(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"type": "summary", "summary": "x", "leafUuid": "1"}\n')
    sessions, ingest = run(tmp_path)
    assert (sessions, ingest.report.counts["no_trace"]) == ([], 1)
    assert "has no step of a model" in f"{ingest.report.problems[0]}"


def test_deep_nesting_and_odd_bytes_in_a_session_cost_a_line_at_most(folder):
    path = folder / "claude_code/rewind.jsonl"
    deep = b'{"type":"user","uuid":"x","parentUuid":null,"message":' + b"[" * 100000 + b"]" * 100000 + b"}\n"
    within = json.loads(path.read_text().splitlines()[1])
    within["uuid"], within["message"]["id"] = "deep", "msg_deep"
    within["message"]["content"] = [{"type": "tool_use", "id": "toolu_deep", "name": "X", "input": "HERE"}]
    nested = json.dumps(within).encode().replace(b'"HERE"', b'{"a":' * 300 + b"1" + b"}" * 300)
    odd = json.dumps({**within, "uuid": "odd", "message": {"id": "msg_odd", "content": "\ud83d"}}).encode()
    path.write_bytes(path.read_bytes() + deep + nested + b"\n" + odd + b"\n")
    (session,), ingest = run(path)
    assert ingest.report.counts["corrupt"] == 1
    assert ingest.report.counts["repaired"] == 1
    assert "nested too deeply" in ingest.report.problems[0].message
    assert any(m.content == "\ufffd" for m in session.trace.messages)
    json.dumps(to_row(session.trace))


def test_a_line_of_many_megabytes_is_read(folder):
    path = folder / "claude_code/rewind.jsonl"
    first, *rest = path.read_text().splitlines()
    record = json.loads(first)
    record["message"]["content"] = "x" * 30_000_000
    path.write_text("\n".join([json.dumps(record), *rest]))
    (session,), _ = run(path)
    assert len(session.trace.messages[1].content) == 30_000_000


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_a_problem_and_others_are_read(folder):
    locked = folder / "claude_code/rewind.jsonl"
    locked.chmod(0)
    sessions, ingest = run(folder)
    assert len(sessions) == 10
    assert "cannot be read" in str(ingest.report.problems[0])


def test_a_missing_path_is_a_problem(tmp_path):
    sessions, ingest = run(tmp_path / "nothing.jsonl")
    assert sessions == []
    assert str(ingest.report.problems[0]) == f"{tmp_path}/nothing.jsonl cannot be read (No such file or directory)."


@pytest.mark.parametrize("workers", [1, 2])
def test_strict_ends_at_the_first_broken_line_and_names_it(folder, workers):
    with pytest.raises(SessionError, match=r"broken\.jsonl:7 is a record of the unknown type 'never-seen-before'"):
        run(folder, strict=True, workers=workers)


def test_a_named_format_is_taken_at_its_word(folder):
    with pytest.raises(UsageError, match="Known formats: claude_code, ") as error:
        run(folder, format="clade_code")
    assert all(harness.name in str(error.value) for harness in HARNESSES)
    sessions, _ = run(folder / "claude_code/rewind.jsonl", format="codex")
    assert sessions == []


def test_a_trace_carries_the_digest_of_its_file_and_the_license(folder):
    sessions, ingest = run(folder, license="mit")
    digests = {entry["digest"] for entry in ingest.manifest.values()}
    assert {session.trace.provenance["file_digest"] for session in sessions} == digests
    assert {session.trace.license for session in sessions} == {"mit"}


def test_every_row_has_the_columns_of_its_config_and_comes_back_the_same(folder):
    sessions, _ = run(folder)
    features = config_features()
    for session in sessions:
        row = json.loads(json.dumps(to_row(session.trace)))
        assert list(row) == list(features["traces"])
        assert from_row(Trace, row) == session.trace
        rows = [json.loads(json.dumps(to_row(step_row(session.trace, step)))) for step in session.trace.steps]
        assert len(rows) == len(session.trace.steps)
        for step in rows:
            assert list(step) == list(features["steps"])
            assert from_row(StepRow, step).trace_id == session.trace.trace_id


def test_published_rows_load_again_with_datasets(folder, tmp_path):
    from datasets import Dataset, load_dataset

    sessions, _ = run(folder)
    rows = {
        "traces": [to_row(s.trace) for s in sessions],
        "steps": [to_row(step_row(s.trace, step)) for s in sessions for step in s.trace.steps],
    }
    for name, features in config_features().items():
        Dataset.from_list(rows[name], features=features).to_parquet(tmp_path / f"{name}.parquet")
        loaded = load_dataset(
            "parquet", data_files=str(tmp_path / f"{name}.parquet"), split="train", streaming=True, features=features
        )
        back = list(loaded)
        assert len(back) == len(rows[name])
        if name == "traces":
            assert [from_row(Trace, row) for row in back] == [session.trace for session in sessions]


def test_the_report_adds_up(folder):
    ingest, tally = Reading([folder]), TraceCounts()
    for session in ingest:
        tally.add(session.trace)
    numbers = numbers_of(ingest.report, tally)
    assert numbers["traces"] == 11
    assert numbers["steps"] == sum(numbers["steps_by_family"].values()) == sum(numbers["steps_by_reasoning"].values())
    assert (numbers["forks"], numbers["boundaries"], numbers["bridged"], numbers["corrupt"]) == (3, 5, 1, 3)
    assert numbers["unknown_types"] == {"never-seen-before": 1}
    assert numbers["subagents"] == 2
    assert numbers["inexact_by_reason"] == {"image_left_out": 2, "microcompact": 1, "missing_parent": 1}


def test_a_report_keeps_some_places_and_counts_all():
    report = FileReport("x.jsonl")
    for line in range(MAX_PROBLEMS + 50):
        report.corrupt(line, "is broken.")
    total = FileReport().merge([report, report])
    assert len(total.problems) == MAX_PROBLEMS
    assert total.num_problems == total.counts["corrupt"] == 2 * (MAX_PROBLEMS + 50)


def test_of_a_stored_session_and_its_printed_stream_the_stored_one_stays(logs, tmp_path):
    stream = [json.loads(line) for line in (logs / "qwen_code/stream.jsonl").read_text().splitlines()]
    (printed := tmp_path / "a.jsonl").write_text((logs / "qwen_code/stream.jsonl").read_text() + " " * 40_000)
    chat = [json.loads(line) for line in (logs / "qwen_code/chat.jsonl").read_text().splitlines()]
    stored = tmp_path / "b.jsonl"
    stored.write_text("\n".join(json.dumps({**one, "sessionId": stream[0]["session_id"]}) for one in chat))
    assert printed.stat().st_size > stored.stat().st_size  # so that it would be read first
    reading = Reading([tmp_path], ReadOptions(workers=1))
    (session,) = reading
    assert not any("stream_log" in step.prefix_reason for step in session.trace.steps)
    assert reading.report.counts["duplicate_traces"] == 1


def test_a_stored_session_replaces_the_stream_of_an_earlier_run(logs, tmp_path):
    stream = json.loads((logs / "qwen_code/stream.jsonl").read_text().splitlines()[0])
    shutil.copy(logs / "qwen_code/stream.jsonl", tmp_path / "a.jsonl")
    first = Reading([tmp_path], ReadOptions(workers=1))
    (printed,) = first
    chat = [json.loads(line) for line in (logs / "qwen_code/chat.jsonl").read_text().splitlines()]
    lines = (json.dumps({**one, "sessionId": stream["session_id"]}) for one in chat)
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    (stored,) = Reading([tmp_path], ReadOptions(workers=1, manifest=json.loads(json.dumps(first.manifest))))
    assert stored.trace.trace_id == printed.trace.trace_id
    assert not any("stream_log" in step.prefix_reason for step in stored.trace.steps)
