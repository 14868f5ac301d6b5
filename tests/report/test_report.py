"""The report counts each message once, proves its lines, and shows no text as markup."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from composer_hub import exits, report
from composer_hub.cli.main import root
from composer_hub.errors.vocabulary import BLAMES
from composer_hub.output import FORMATS
from composer_hub.report.numbers import Numbers
from composer_hub.report.projects import projects_of
from composer_hub.report.sentences import headline, lead
from composer_hub.report.words import tokens
from tests.hidden import FEW, hidden_in
from tests.quick import quick
from tests.report.sessions import MISSING, Log, wrong_path

UTC = report.ReportOptions(workers=1, zone=datetime.UTC)


def numbers_of(folder: Path) -> Numbers:
    return report.report([folder], UTC, home=folder).numbers


def lines_of(folder: Path) -> list[str]:
    return [lesson.counted for lesson in numbers_of(folder).lessons]


def run(*words: str | Path, home: Path) -> Result:
    names = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR")
    env = {"HOME": str(home), "COLUMNS": "80", **dict.fromkeys((*names, "COMPOSER_HUB_STATE"))}
    return CliRunner().invoke(root, ["report", *map(str, words)], env=env)


# ---------------------------------------------------------------------------------------------------------- counting


def test_copies_of_a_file_change_no_number(tmp_path: Path) -> None:
    one = wrong_path(tmp_path / "a" / "s1.jsonl", 1).write()
    before = report.report([tmp_path], UTC).data()
    for name in ("copy", "again"):
        shutil.copy(one, tmp_path / "a" / f"{name}.jsonl")
    after = report.report([tmp_path], UTC).data()
    for changed in ("files",):
        before.pop(changed), after.pop(changed)
    for data in (before, after):
        for failure in data["failures"]:
            failure.pop("path")
    assert after == before


def test_a_message_counts_the_largest_of_its_counts_and_belongs_to_the_first_session(tmp_path: Path) -> None:
    Log(tmp_path / "later.jsonl", day=2).call("Bash", command="ls", key="msg-1", output=700).write()
    Log(tmp_path / "first.jsonl", day=1).call("Bash", command="ls", key="msg-1", output=3).write()
    numbers = numbers_of(tmp_path)
    assert (numbers.num_steps, numbers.usage.output, numbers.usage.read) == (1, 700, 1000)
    assert [Path(session.path).stem for session in numbers.collection.sessions] == ["first"]
    assert numbers.collection.num_repeated == 1


def test_a_message_that_holds_only_thinking_counts_once_in_the_tokens_and_is_no_step(tmp_path: Path) -> None:
    log = wrong_path(tmp_path / "a" / "s1.jsonl", 1)
    log.write()
    before = numbers_of(tmp_path)
    log.think("thought", 5000).call("Bash", command="ls").write()
    shutil.copy(log.path, tmp_path / "copy.jsonl")
    after = numbers_of(tmp_path)
    assert after.num_steps == before.num_steps + 1
    assert after.usage.read == before.usage.read + 1000 + 5000
    assert sum(group.usage.read for group in after.models) == after.usage.read
    assert sum(group.usage.read for group in after.weeks) == after.usage.read


def test_a_repair_is_the_failed_messages_and_the_one_that_worked(tmp_path: Path) -> None:
    log = wrong_path(tmp_path / "s.jsonl", 1)
    log.call("Edit", "String to replace not found in file.", error=True, file_path="/work/shop/a.py", old_string="x")
    log.call("Bash", "1", command="wc -l a.py")
    log.call("Edit", "String to replace not found in file.", error=True, file_path="/work/shop/a.py", old_string="y")
    log.call("Edit", file_path="/work/shop/a.py", old_string="z").write()
    numbers = numbers_of(tmp_path)
    edit = next(one for one in numbers.repairs if one.episode.tool == "Edit")
    assert (edit.num_failed, edit.episode.worked) == (2, 5)
    assert edit.span == pytest.approx(edit.direct * 4 / 3)
    # The misspelled file was read under another name, which is another purpose.
    assert next(one for one in numbers.repairs if one.episode.tool == "Read").episode.worked == -1


def test_a_repair_ends_at_the_next_prompt(tmp_path: Path) -> None:
    log = Log(tmp_path / "s.jsonl")
    log.call("Edit", "String to replace not found in file.", error=True, file_path="/work/shop/a.py", old_string="x")
    log.say("Leave it.").call("Edit", file_path="/work/shop/a.py", old_string="z").write()
    assert [one.episode.worked for one in numbers_of(tmp_path).repairs] == [-1]


def test_few_calls_give_no_rate_and_many_clean_ones_say_that_little_is_lost(tmp_path: Path) -> None:
    log = wrong_path(tmp_path / "s.jsonl", 1)
    log.write()
    assert headline(numbers_of(tmp_path)) == "Only 2 calls so far: too few for a rate."
    for number in range(250):
        log.call("Bash", command=f"echo {number}")
    log.write()
    assert headline(numbers_of(tmp_path)) == "Little is lost here."


def test_a_number_of_tokens_has_no_exponent() -> None:
    numbers = (950, 999.6, 12_345, 999_400, 999_600, 999_960_000, 2e12)
    assert [tokens(number) for number in numbers] == ["950", "1 k", "12.3 k", "999 k", "1 M", "1 G", "2,000 G"]


DAY = 86400.0


def test_a_report_says_per_week_what_changed_since_one_of_an_earlier_day(tmp_path: Path) -> None:
    logs, first = tmp_path / "logs", datetime.datetime(2026, 10, 12, tzinfo=datetime.UTC).timestamp()
    options = dataclasses.replace(UTC, memory=tmp_path / "state", now=first)
    for day in (1, 2):
        wrong_path(logs / f"s{day}.jsonl", day).write()
    made = report.report([logs], options, home=tmp_path)
    assert made.view.change is None
    made.write(tmp_path / "page.html")
    wrong_path(logs / "s3.jsonl", 14).write()
    same_day = report.report([logs], dataclasses.replace(options, now=first + 3600), home=tmp_path)
    assert same_day.view.change is None
    later = report.report([logs], dataclasses.replace(options, now=first + 7 * DAY), home=tmp_path)
    change = later.view.change
    assert change is not None
    assert [(week.name, week.num_calls, week.num_failed) for week in change.weeks] == [("2026-10-12", 2, 1)]
    assert (change.num_sessions, len(change.fresh), len(change.again), len(change.quiet)) == (1, 0, 1, 0)
    assert "Since the report of 12 Oct 2026: 1 session and 2 calls more; 1 of them failed" in later.page()
    assert "Since the report of 12 Oct 2026" in " ".join(later.summary().split())
    assert later.data()["since"]["num_lines_again"] == 1
    shared = report.report([logs], dataclasses.replace(options, now=first + 7 * DAY, share=True), home=tmp_path)
    assert "golangci" not in shared.page()
    (kept,) = (tmp_path / "state" / "report").iterdir()
    assert "golangci" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_only_reports_on_the_same_folders_are_compared_and_a_damaged_memory_is_none(tmp_path: Path) -> None:
    options = dataclasses.replace(UTC, memory=tmp_path / "state", now=9e9)
    for name in ("one", "two"):
        wrong_path(tmp_path / name / "s1.jsonl", 1).write()
    report.report([tmp_path / "one"], options).write(tmp_path / "page.html")
    wrong_path(tmp_path / "one" / "s2.jsonl", 2).write()
    next_day = dataclasses.replace(options, now=9e9 + DAY)
    assert report.report([tmp_path / "one"], next_day).view.change is not None
    assert report.report([tmp_path / "two"], next_day).view.change is None
    for damage in ("", "[1]", '[{"at": "x"}]', "[" * 100_000):
        for file in (tmp_path / "state" / "report").iterdir():
            file.write_text(damage)
        made = report.report([tmp_path / "one"], next_day)
        assert made.view.change is None
        made.write(tmp_path / "page.html")
    assert json.loads(next((tmp_path / "state" / "report").iterdir()).read_text())


def test_calls_that_the_report_before_left_out_are_not_new(tmp_path: Path) -> None:
    logs, end = tmp_path / "logs", datetime.datetime(2026, 10, 10, tzinfo=datetime.UTC).timestamp()
    options = dataclasses.replace(UTC, memory=tmp_path / "state")
    for day in (1, 2, 6, 7):
        wrong_path(logs / f"s{day}.jsonl", day).write()
    report.report([logs], dataclasses.replace(options, since=end - 5 * DAY, now=end)).write(tmp_path / "page.html")
    longer = report.report([logs], dataclasses.replace(options, since=end - 20 * DAY, now=end + DAY))
    assert longer.view.change is None


def test_sessions_that_left_the_window_of_since_cancel_no_new_ones(tmp_path: Path) -> None:
    logs, end = tmp_path / "logs", datetime.datetime(2026, 10, 10, tzinfo=datetime.UTC).timestamp()
    options = dataclasses.replace(UTC, memory=tmp_path / "state")
    for day in (1, 2):
        wrong_path(logs / f"s{day}.jsonl", day).write()
    report.report([logs], dataclasses.replace(options, since=end - 10 * DAY, now=end)).write(tmp_path / "page.html")
    for day in (14, 15):
        wrong_path(logs / f"s{day}.jsonl", day).write()
    moved = dataclasses.replace(options, since=end - 3 * DAY, now=end + 7 * DAY)
    change = report.report([logs], moved).view.change
    assert change is not None
    assert (change.num_sessions, change.num_calls) == (2, 4)


def test_since_leaves_out_older_messages(tmp_path: Path) -> None:
    Log(tmp_path / "old.jsonl", day=1).call("Bash", command="ls").write()
    Log(tmp_path / "new.jsonl", day=20).call("Bash", command="ls").write()
    since = datetime.datetime(2026, 10, 10, tzinfo=datetime.UTC).timestamp()
    for path in tmp_path.iterdir():
        os.utime(path, (since + 1e7, since + 1e7))
    assert report.report([tmp_path], dataclasses.replace(UTC, since=since)).numbers.num_steps == 1
    with pytest.raises(exits.NothingToDo, match="No message since 2026-12-19"):
        report.report([tmp_path], dataclasses.replace(UTC, since=since + 70 * 86400))


def test_worker_processes_find_what_one_process_finds(tmp_path: Path) -> None:
    for number in range(3):
        wrong_path(tmp_path / f"s{number}.jsonl", number + 1).write()
    assert (
        report.report([tmp_path], dataclasses.replace(UTC, workers=2)).data() == report.report([tmp_path], UTC).data()
    )


# -------------------------------------------------------------------------------------------------------------- lines


def test_a_wrong_name_in_several_sessions_is_a_line_with_the_right_one(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        wrong_path(tmp_path / f"s{day}.jsonl", day).write()
    line = "- The right path is `.golangci.yaml`; there is no `.golangci.yml` (3 failures in 3 sessions)."
    assert lines_of(tmp_path) == [line]


@pytest.mark.parametrize(("folder", "wrong"), [
    pytest.param("/usr", "config.yml".rjust(256, "n"), id="wrong name"),
    pytest.param("/usr", "config.yml".rjust(280, "n"), id="longer wrong name"),
    pytest.param(f"/{'n' * 256}", "config.yml", id="folder"),
])  # fmt: skip
def test_a_name_that_no_disk_can_hold_ends_no_report(folder: str, wrong: str, tmp_path: Path) -> None:
    for day in (1, 2, 3):
        log = Log(tmp_path / f"s{day}.jsonl", folder, day)
        log.call("Read", MISSING, error=True, file_path=f"{folder}/{wrong}")
        log.call("Read", "run:", file_path=f"{folder}/config.yaml").write()
    assert numbers_of(tmp_path).num_calls == 6


@pytest.mark.parametrize("worktree", ["/work/shop/.worktrees/a", "/work/shop/.claude/worktrees/b"])
def test_a_worktree_is_the_project(worktree: str, tmp_path: Path) -> None:
    wrong_path(tmp_path / "s1.jsonl", 1).write()
    wrong_path(tmp_path / "s2.jsonl", 2, cwd=worktree).write()
    assert len(lines_of(tmp_path)) == 1
    assert len(set(numbers_of(tmp_path).projects.values())) == 1


@pytest.mark.parametrize("below", ["", "/api"])
def test_a_linked_work_tree_anywhere_is_the_project(below: str, tmp_path: Path) -> None:
    main, linked = tmp_path / "shop", tmp_path / "elsewhere" / "fix-cart"
    for folder in (main, linked):
        (folder / "api").mkdir(parents=True)
        (folder / "api" / ".golangci.yaml").touch()
        (folder / ".golangci.yaml").touch()
    (main / ".git" / "worktrees" / "fix-cart").mkdir(parents=True)
    (linked / ".git").write_text(f"gitdir: {main}/.git/worktrees/fix-cart\n")
    wrong_path(tmp_path / "logs" / "s1.jsonl", 1, cwd=f"{main}{below}").write()
    wrong_path(tmp_path / "logs" / "s2.jsonl", 2, cwd=f"{linked}{below}").write()
    assert set(numbers_of(tmp_path / "logs").projects.values()) == {str(main)}
    assert len(lines_of(tmp_path / "logs")) == 1


def test_a_git_file_that_names_no_main_tree_is_its_own_project(tmp_path: Path) -> None:
    for number, words in enumerate(("gitdir: ../.git/modules/lib", "nonsense", "gitdir: \n")):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / ".git").write_text(words)
        assert projects_of([str(tmp_path / str(number))]) == {str(tmp_path / str(number)): str(tmp_path / str(number))}


def test_a_windows_path_is_one_of_its_project(tmp_path: Path) -> None:
    for day, drive in ((1, "d:"), (2, "D:")):
        log = Log(tmp_path / f"s{day}.jsonl", cwd=f"{drive}\\shop", day=day)
        log.call("Read", MISSING, error=True, file_path=f"{drive}\\shop\\.golangci.yml")
        log.call("Read", "run:", file_path="D:/shop/.golangci.yaml").write()
    line = "- The right path is `.golangci.yaml`; there is no `.golangci.yml` (2 failures in 2 sessions)."
    assert lines_of(tmp_path) == [line]


def test_one_session_or_its_fork_proves_nothing(tmp_path: Path) -> None:
    log = wrong_path(tmp_path / "s1.jsonl", 1)
    log.write()
    log.path = tmp_path / "s2.jsonl"
    log.write()
    assert lines_of(tmp_path) == []


def test_a_name_that_worked_later_is_no_line(tmp_path: Path) -> None:
    wrong_path(tmp_path / "s1.jsonl", 1).write()
    wrong_path(tmp_path / "s2.jsonl", 2).write()
    Log(tmp_path / "s3.jsonl", day=3).call("Read", "run:", file_path="/work/shop/.golangci.yml").write()
    assert lines_of(tmp_path) == []


def test_a_file_that_the_agent_made_itself_is_no_correction(tmp_path: Path) -> None:
    for day in (1, 2):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Read", MISSING, error=True, file_path="/work/shop/docs/notes.md")
        log.call("Write", file_path="/work/shop/doc/notes.md", content="x")
        log.call("Read", "x", file_path="/work/shop/doc/notes.md").write()
    assert lines_of(tmp_path) == []


def test_what_the_guide_says_is_not_offered_again(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    (project / ".golangci.yaml").write_text("run:")
    for day in (1, 2):
        wrong_path(tmp_path / "logs" / f"s{day}.jsonl", day, cwd=str(project)).write()
    made = report.report([tmp_path / "logs"], UTC)
    assert [lesson.is_written for lesson in made.numbers.lessons] == [False]
    (project / "AGENTS.md").write_text("The lint config is `.golangci.yaml`.")
    made = report.report([tmp_path / "logs"], UTC)
    assert [lesson.is_written for lesson in made.numbers.lessons] == [True]
    assert "To copy" not in made.summary()
    (project / ".golangci.yml").write_text("run:")  # the name is right now
    assert report.report([tmp_path / "logs"], UTC).numbers.lessons == []


GUIDE = "# Shop\n\nLint with `golangci-lint run -c .golangci.yml`.\n"


def test_the_wrong_sentence_of_the_guide_is_quoted_with_its_line(tmp_path: Path) -> None:
    project = tmp_path / "shop"
    project.mkdir()
    (project / ".golangci.yaml").touch()
    (project / "CLAUDE.md").write_text(GUIDE)
    for day in (1, 2):
        wrong_path(tmp_path / "logs" / f"s{day}.jsonl", day, cwd=str(project)).write()
    made = report.report([tmp_path / "logs"], UTC)
    quote = "CLAUDE.md, line 3: Lint with `golangci-lint run -c .golangci.yml`."
    assert [(lesson.quote, lesson.is_written) for lesson in made.numbers.lessons] == [(quote, False)]
    assert quote in made.page()
    assert "Wrong in CLAUDE.md, line 3" in made.summary()
    assert made.data()["lines"][0]["wrong_sentence"] == quote
    (project / "CLAUDE.md").write_text("The config is .golangci.yaml, not .golangci.yml.")
    assert [lesson.quote for lesson in report.report([tmp_path / "logs"], UTC).numbers.lessons] == [""]


def test_a_guide_that_a_session_read_is_quoted_with_the_line_it_showed(tmp_path: Path) -> None:
    for day in (1, 2):
        log = wrong_path(tmp_path / f"s{day}.jsonl", day)
        log.call("Read", "    11\u2192# Lint\n    12\u2192See .golangci.yml.", file_path="/work/shop/CLAUDE.md").write()
    assert [lesson.quote for lesson in numbers_of(tmp_path).lessons] == ["CLAUDE.md, line 12: See .golangci.yml."]


NO_JQ = "FAIL shop 3.1s\n/usr/bin/bash: line 1: jq: command not found\nmake: *** [e2e] Error 1"


def test_a_program_that_is_missing_in_several_sessions_is_a_line_whatever_else_failed(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("exec", NO_JQ, script="await tools.exec_command({cmd: 'make e2e; jq . report.json'})").write()
    line = "- `jq` is not on the PATH; do without it, or install it first (3 failures in 3 sessions)."
    assert lines_of(tmp_path) == [line]


def test_a_missing_python_is_the_python3_that_worked(tmp_path: Path) -> None:
    for day in (1, 2):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Bash", "Exit code 127\nbash: python: command not found", error=True, command="python a.py")
        log.call("Bash", "1", command="python3 b.py").write()
    assert lines_of(tmp_path) == ["- `python` is not on the PATH; use `python3` (2 failures in 2 sessions)."]


@pytest.mark.parametrize(
    "call",
    [
        {"name": "Bash", "command": "gh run view 7 --log"},  # the log of another machine
        {"name": "Bash", "command": "PATH=/empty jq ."},  # a PATH broken on purpose
        {"name": "Read", "file_path": "/work/shop/jq.log"},
    ],
)
def test_a_missing_program_that_no_shell_of_the_session_looked_for_is_no_line(
    call: dict[str, str], tmp_path: Path
) -> None:
    for day in (1, 2, 3):
        Log(tmp_path / f"s{day}.jsonl", day=day).call(result=NO_JQ, **call).write()
    assert lines_of(tmp_path) == []


STOPPED = "The user doesn't want to proceed with this tool use. The tool use was rejected"


def test_a_no_that_stopped_two_calls_counts_once(tmp_path: Path) -> None:
    log = Log(tmp_path / "s1.jsonl")
    for command, words in (("make deploy", ""), ("make notify", " the user said: never deploy from here, use CI")):
        log.call("Bash", f"{STOPPED}.{words}", error=True, key="one", command=command)
    log.write()
    numbers = numbers_of(tmp_path)
    assert numbers.by_blame["user"] == 1
    assert [site.failure.reason for site in numbers.sites] == ["never deploy from here, use CI"]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (
            "Please deploy with the CI workflow, never from here.",
            "Please deploy with the CI workflow, never from here.",
        ),
        ("Now write a poem about the sea, and use rhymes.", ""),
    ],
)
def test_a_reason_is_about_the_call(prompt: str, reason: str, tmp_path: Path) -> None:
    log = Log(tmp_path / "s1.jsonl").call("Bash", STOPPED, error=True, command="make deploy")
    log.say(prompt).call("Bash", command="ls").write()
    assert [site.failure.reason for site in numbers_of(tmp_path).sites] == [reason]


@pytest.mark.parametrize("num_failed", [0, 3, 60])
@pytest.mark.parametrize("num_calls", [90, 250])
def test_the_headline_and_the_sentences_behind_it_share_no_number(
    num_calls: int, num_failed: int, tmp_path: Path
) -> None:
    log = Log(tmp_path / "s1.jsonl")
    for number in range(num_calls):
        log.call(
            "Read",
            MISSING if number < num_failed else "ok",
            error=number < num_failed,
            file_path=f"/work/shop/{number}",
        )
    log.write()
    numbers = numbers_of(tmp_path)
    figures = [set(re.findall(r"\d[\d.,]*|spend", words(numbers).replace("of 100", ""))) for words in (headline, lead)]
    assert not figures[0] & figures[1]


FLAG = "Exit code 1\nunknown flag: --stat\n\nUsage:  gh pr diff [<number>]"


@pytest.mark.parametrize(
    ("worked", "line"),
    [
        ("gh pr diff 3 --name-only", "- `gh pr diff` has no `--stat`; use `--name-only` (2 failures in 2 sessions)."),
        ("gh pr diff 4 --name-only", "- `gh pr diff` has no `--stat` (2 failures in 2 sessions)."),
        ("gh pr diff 3", "- `gh pr diff` has no `--stat` (2 failures in 2 sessions)."),
        ("gh pr diff --help", "- `gh pr diff` has no `--stat` (2 failures in 2 sessions)."),
        ("gh pr diff 3 --name-only | head", "- `gh pr diff` has no `--stat` (2 failures in 2 sessions)."),
        ("git reset --hard && gh pr view 3", "- `gh pr diff` has no `--stat` (2 failures in 2 sessions)."),
    ],
)  # fmt: skip
def test_a_flag_is_replaced_only_by_what_surely_worked(worked: str, line: str, tmp_path: Path) -> None:
    for day in (1, 2):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Bash", FLAG, error=True, command="gh pr diff 3 --stat").call("Bash", command=worked).write()
    assert lines_of(tmp_path) == [line]


@pytest.mark.parametrize("way", ["uv run pytest", "python -m pytest", ".venv/bin/pytest"])
def test_a_program_that_is_not_there_is_run_in_the_way_that_worked(way: str, tmp_path: Path) -> None:
    for day in (1, 2):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Bash", "Exit code 127\nbash: pytest: command not found", error=True, command="pytest -q tests")
        log.call("Bash", "3 passed", command=f"{way} -q tests").write()
    assert lines_of(tmp_path) == [f"- `pytest` is not on the PATH; use `{way}` (2 failures in 2 sessions)."]


@pytest.mark.parametrize(
    ("typed", "flag", "runs", "line"),
    [
        ("git -C /work/shop status", "-C", "rtk git", "`-C` does not work with `git` here, which runs `rtk git`"),
        (
            "npm run format -- --write",
            "--write",
            "ultracite format",
            "`--write` does not work with `npm run format` here, which runs `ultracite format`",
        ),
    ],
)
def test_a_wrapper_is_named_beside_the_command_that_was_typed(
    typed: str, flag: str, runs: str, line: str, tmp_path: Path
) -> None:
    for day in (1, 2):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        answer = f"Exit code 2\nerror: unexpected argument '{flag}' found\n\nUsage: {runs} [OPTIONS] <COMMAND>"
        log.call("Bash", answer, error=True, command=typed).write()
    assert lines_of(tmp_path) == [f"- {line} (2 failures in 2 sessions)."]


def test_a_fact_about_a_program_is_one_of_the_machine(tmp_path: Path) -> None:
    for day, cwd in ((1, "/work/shop"), (2, "/work/api")):
        log = Log(tmp_path / f"s{day}.jsonl", cwd, day)
        log.call("Bash", FLAG, error=True, command=f"gh pr diff {day} --stat")
        log.call("Bash", command="gh pr diff 3 --name-only").write()
    made = report.report([tmp_path], UTC)
    assert [(lesson.project, lesson.num_sessions) for lesson in made.numbers.lessons] == [("", 2)]
    assert "All projects" in made.page()


def test_a_misspelled_folder_is_found_and_a_sibling_is_not(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        for wrong, right in (("order", "orders"), ("cart", "prices")):
            log.call("Read", MISSING, error=True, file_path=f"/work/shop/src/{wrong}/models.py")
            log.call("Read", "x", file_path=f"/work/shop/src/{right}/models.py")
        log.write()
    line = "- The right path is `src/orders/models.py`; there is no `src/order/models.py` (3 failures in 3 sessions)."
    assert lines_of(tmp_path) == [line]


def test_a_destructive_command_is_never_a_fix(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Bash", "Exit code 127\nbash: trash: command not found", error=True, command="trash build/cache")
        log.call("Bash", command="rm -rf build/cache").write()
    assert [line for line in lines_of(tmp_path) if "rm" in line.split()] == []


# --------------------------------------------------------------------------------------------------------------- page


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs


HOSTILE = f"<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{FEW}</pre>{{{{x}}}}\ud800\x1b[2J" + "W" * 90


def hostile_sessions(folder: Path) -> None:
    for day in (1, 2):
        log = Log(folder / f"s{day}<b>{FEW}.jsonl", cwd=f"/work/{HOSTILE[:40]}", day=day)
        log.call("Bash", f"Exit code 1\n{HOSTILE}", error=True, command=f"gh {HOSTILE} --stat")
        log.call("Read", MISSING, error=True, file_path=f"/work/{HOSTILE[:40]}/a{HOSTILE}.py")
        log.call(f"Tool{FEW}{HOSTILE}"[:80], "<tool_use_error>No such tool available: x</tool_use_error>", error=True)
        log.call("Edit", f"The user doesn't want to proceed. The user said: {HOSTILE}", error=True).write()


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    hostile_sessions(tmp_path)
    page = report.report([tmp_path], UTC).page()
    tags = Tags(page)
    assert tags.names.count("script") == 1
    assert "img" not in tags.names
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name == "style"]
    assert hidden_in(page) == []
    assert "⟦U+202E⟧" in page


@pytest.mark.parametrize("mode", FORMATS)
def test_the_command_prints_no_hidden_character(tmp_path: Path, mode: str) -> None:
    hostile_sessions(tmp_path / "s")
    result = run(tmp_path / "s", "--out", tmp_path / "page.html", "--format", mode, home=tmp_path)
    assert result.exit_code == 0, result.output
    assert hidden_in(result.output) == []


@pytest.mark.parametrize(("char", "num_lines"), [("", 1), ("\u202e", 0), ("\U000e0041", 0), ("\u3164", 0), ("\n", 0)])
def test_a_line_for_agents_md_never_hides_a_character(tmp_path: Path, char: str, num_lines: int) -> None:
    for day in (1, 2, 3):
        log = Log(tmp_path / f"s{day}.jsonl", day=day)
        log.call("Read", MISSING, error=True, file_path=f"/work/shop/lint{char}er.yml")
        log.call("Read", "run:", file_path=f"/work/shop/lint{char}er.yaml").write()
    made = report.report([tmp_path], UTC)
    assert len(made.data()["lines"]) == num_lines
    assert ("To copy" in made.summary()) == bool(num_lines)
    assert 'id="copy' in made.page() or not num_lines


@pytest.mark.parametrize(("width", "scheme"), quick(1, [(390, "dark"), (1440, "light")]))
def test_a_hostile_page_fits_the_screen_passes_axe_and_runs_nothing(
    tmp_path: Path, browser: Any, width: int, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    hostile_sessions(tmp_path / "s")
    page, complaints = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme), []
    page.set_default_timeout(600_000)
    for event in ("pageerror", "dialog", "console"):
        page.on(event, lambda what: complaints.append(str(what)))
    page.goto(report.report([tmp_path / "s"], UTC).write(tmp_path / "page.html").as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.close()
    assert complaints == []


def test_the_page_loads_nothing_and_each_link_has_its_place(tmp_path: Path) -> None:
    for day in (1, 2):
        wrong_path(tmp_path / f"s{day}.jsonl", day).write()
    page = report.report([tmp_path], UTC).page()
    tags = Tags(page)
    assert "default-src 'none'" in page
    assert not re.findall(r"(?:https?:)?//[\w.]+\.\w+/", page)
    ids = {value for name, value in tags.attributes if name == "id"}
    links = {value.removeprefix("#") for name, value in tags.attributes if name == "href" and value}
    assert links
    assert links <= ids


def test_a_shown_secret_is_replaced_and_raw_shows_it(tmp_path: Path) -> None:
    token = "ghp_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA2cD4"
    log = Log(tmp_path / "s.jsonl")
    log.call(
        "Bash", f"Exit code 1\nunknown flag: --frob {token}", error=True, command=f"GH_TOKEN={token} gh pr diff --frob"
    )
    log.call(
        "Edit",
        "The user doesn't want to proceed with this tool use. The user said: mail dana.ng@shop.io instead",
        error=True,
    ).write()
    page = report.report([tmp_path], UTC).page()
    assert token not in page
    assert "dana.ng@shop.io" not in page
    assert token in report.report([tmp_path], dataclasses.replace(UTC, raw=True)).page()


def test_a_shared_page_holds_counts_only(tmp_path: Path) -> None:
    for day in (1, 2, 3):
        log = wrong_path(tmp_path / f"s{day}.jsonl", day, cwd="/work/orchid")
        log.call("mcp__orchid-crm__find", "Error: no customer", error=True, query="orchid").write()
    made = report.report([tmp_path], dataclasses.replace(UTC, share=True))
    for text in (made.page(), made.summary(), json.dumps(made.data())):
        for word in ("orchid", "golangci", "s1", str(tmp_path)):
            assert word not in text
    assert "path not found" in made.page()


def test_every_blame_has_a_color_in_both_modes() -> None:
    css = (Path(report.__file__).parent / "page.css").read_text()
    for blame in BLAMES:
        assert css.count(f"--{blame}:") == 2
        assert f".{blame} {{ fill: var(--{blame}); }}" in css


# ------------------------------------------------------------------------------------------------------------ command


def test_the_command_finds_the_folders_of_harnesses_and_writes_a_private_page(tmp_path: Path) -> None:
    wrong_path(tmp_path / ".claude/projects/p/s1.jsonl", 1).write()
    result = run("--out", tmp_path / "page.html", home=tmp_path)
    assert result.exit_code == 0, result.output
    assert "1 session · 1 project" in result.output
    assert (tmp_path / "page.html").stat().st_mode & 0o777 == 0o600
    assert run("--out", tmp_path / "page.html", home=tmp_path).exit_code == 0  # its own page is replaced


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], exits.NOTHING_TO_DO, "No sessions were found. Looked for the folders of Claude Code"),
        (["empty"], exits.NOTHING_TO_DO, "There are no files in"),
        (["empty", "--since", "2026-01-02"], exits.NOTHING_TO_DO, "no files that changed since 2026-01-02 in"),
        (["other"], exits.NOTHING_TO_DO, "1 file looked at"),
        (["missing"], exits.USAGE, "There is no"),
        *((["other", "--since", since], exits.USAGE, "is no date") for since in (
            "soon", "0000-01-01", "99999y", "9999-12-31", "9999-12-31T23:59:59-12:00",
        )),
        *((["other", "--since", since], exits.NOTHING_TO_DO, "1 file looked at") for since in (
            "0001-01-01", "0001-01-01T00:00:00+14:00", "99d", "1900-02-03", "1970-01-01",
        )),
        (["other", "--out", "empty"], exits.USAGE, "is a folder"),
        (["other", "--out", "other/notes.txt"], exits.USAGE, "is no page of this command"),
        (["other", "--raw", "--share"], exits.USAGE, "choose one of them"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence(words: list[str], code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    places = [str(tmp_path / word) if word in ("empty", "other", "missing") or "/" in word else word for word in words]
    result = run(*places, home=tmp_path)
    error = result.exception
    assert isinstance(error, exits.ComposerError)
    assert error.exit_code == code
    assert told in str(error)
    assert (tmp_path / "other" / "notes.txt").read_text() == "hello"


def test_odd_files_are_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    wrong_path(tmp_path / "good.jsonl", 1).write()
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with open(os.fsencode(tmp_path) + b"/caf\xe9.jsonl", "wb") as file:
        file.write((tmp_path / "good.jsonl").read_bytes().replace(b"good", b"more"))
    with (tmp_path / "good.jsonl").open("ab") as file:
        file.write(b'{"type": "assistant", "uuid": "half')  # a session that is being written
    made = report.report([tmp_path, tmp_path / "good.jsonl"], UTC)
    assert made.numbers.num_sessions == 2
    assert made.data()["files"]["unreadable"] == 1
    assert made.data()["files"]["empty"] == 1
    made.page().encode()  # a name that is not UTF-8 does not break the page


def test_an_interrupted_run_leaves_the_page_before_it(tmp_path: Path) -> None:
    wrong_path(tmp_path / "s.jsonl", 1).write()
    made = report.report([tmp_path], UTC)
    page = made.write(tmp_path / "page.html")
    before = page.read_text()
    broken = dataclasses.replace(made.view, numbers=None)
    made.view = broken
    with pytest.raises(AttributeError):
        made.write(page)
    assert page.read_text() == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
