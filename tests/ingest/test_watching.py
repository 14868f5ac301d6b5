"""When a change of session files counts as settled, and what a machine's harnesses have."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

from composer_hub.ingest.discovery import sessions_on
from composer_hub.ingest.watching import MAX_WAIT, settled_changes, snapshot_of

FILE = Path("a.jsonl")


class Machine:
    """A clock that moves by sleeping, and files whose sizes are given by time."""

    def __init__(self, size_at):
        self.time, self.size_at = 0.0, size_at

    def sleep(self, seconds):
        self.time += seconds

    def changes(self, settle=4.0):
        """Yield the times at which a change is passed on."""
        look = lambda: {FILE: (self.size_at(self.time),)}  # noqa: E731
        for _ in settled_changes(look, settle=settle, now=lambda: self.time, sleep=self.sleep):
            yield self.time


def first(changes, number):
    return list(itertools.islice(changes, number))


def test_files_are_passed_on_at_once_and_then_once_per_settled_change():
    machine = Machine(lambda time: 1 if time < 20 else min(int(time), 25))
    assert machine.time == 0
    begun, changed = first(machine.changes(), 2)
    assert begun == 0
    assert 29 <= changed <= 31  # the file grew until 25 and then rested for 4 seconds


def test_a_file_that_never_rests_is_passed_on_after_a_longer_time_and_again():
    machine = Machine(lambda time: int(time))
    begun, second, third = first(machine.changes(), 3)
    assert begun == 0
    assert MAX_WAIT * 4 <= second <= MAX_WAIT * 4 + 3
    assert MAX_WAIT * 4 <= third - second <= MAX_WAIT * 4 + 3


def test_a_change_during_the_work_is_a_new_one():
    machine = Machine(lambda time: 1 if time < 2 else 2)
    changes = machine.changes()
    next(changes)
    machine.time = 10.0  # the caller worked, and meanwhile the file changed
    assert next(changes) > 10


def test_a_snapshot_sees_growth_and_new_files(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}")
    before = snapshot_of([tmp_path])
    (tmp_path / "b.jsonl").write_text("{}")
    between = snapshot_of([tmp_path])
    (tmp_path / "a.jsonl").write_text("{} {}")
    assert before != between != snapshot_of([tmp_path])
    assert snapshot_of([tmp_path / "missing"]) == {}


def test_the_sessions_of_a_machine_are_listed_by_harness_without_other_files(logs, tmp_path):
    project = tmp_path / ".claude/projects/p"
    project.mkdir(parents=True)
    shutil.copy(logs / "claude_code/parallel.jsonl", project)
    (project / "notes.txt").write_text("not a session")
    (tmp_path / ".qwen/projects").mkdir(parents=True)
    codex = tmp_path / "elsewhere/sessions"
    codex.mkdir(parents=True)
    shutil.copy(next((logs / "codex").glob("rollout-*")), codex)
    found = sessions_on({"CODEX_HOME": str(tmp_path / "elsewhere")}, tmp_path)
    assert [(one.harness, one.folder, one.num_files) for one in found] == [
        ("Claude Code", tmp_path / ".claude/projects", 1),
        ("Codex CLI", codex, 1),
    ]
    assert found[0].num_bytes == (project / "parallel.jsonl").stat().st_size
    assert sessions_on({}, tmp_path / "empty") == []
