"""Statements by a model: what replaces what, what is dropped, and what is paid."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from composer_hub import exits, tasks
from composer_hub.cli.main import root
from composer_hub.records import Task
from composer_hub.replay import paid_model
from composer_hub.replay.fake import TeacherServer, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.tasks.code import removed_lines
from composer_hub.tasks.rewrite import MAX_TOKENS, Rewriter, rewritten
from tests.environments.toy import TOYS

ISSUE = "Calling `camel` on a name with underscores fails. It should give the same words, each with a capital letter."


def task_set(kind: str = "stub") -> tasks.TaskSet:
    texts = ("Level 0.\n\nTests.", "This is a tree.\n\nContract.\n\nTests.", "This is a tree.\n\nContract.\n\nMore.")
    task = dataclasses.replace(TOYS[2].task, kind=kind, statements=texts, statement=texts[1], help_level=1)
    return tasks.TaskSet((task,), {}, (), (), tasks.Options())


def scripted(text: str) -> Rewriter:
    return Rewriter("small", complete=lambda prompt: text)


def one(made: tasks.TaskSet) -> Task:
    (task,) = made.tasks
    return task


def test_a_text_replaces_the_first_paragraph_and_nothing_that_was_measured() -> None:
    made, counts = rewritten(task_set(), scripted(f"<think>hm</think>Issue: {ISSUE}"))
    task = one(made)
    assert task.statement == task.statements[1] == f"{ISSUE}\n\nContract.\n\nTests."
    assert task.statements[0] == "Level 0.\n\nTests."
    assert task.validation["statement_by"].startswith("small@")
    assert counts == {"taken": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{ISSUE} Use `return "".join(part.capitalize() for part in text.split("_"))`.', "quotes the solution"),
        (f"{ISSUE} {'  '.join(min(removed_lines(TOYS[2].task.edits, TOYS[2].task.solution)))}", "quotes the solution"),
        (ISSUE.replace("camel", "it"), "does not name the function"),
        ("`camel` fails.", "too short or too long"),
        (f"{ISSUE} " * 20, "too short or too long"),
        ("", "not asked or no answer"),
    ],
)
def test_a_text_that_leaks_or_says_too_little_is_dropped_and_counted(text: str, reason: str) -> None:
    made, counts = rewritten(task_set(), scripted(text))
    assert one(made) == one(task_set())
    assert counts == {reason: 1}


def test_a_statement_that_asks_for_tests_is_never_sent() -> None:
    rewriter = scripted(ISSUE)
    made, _ = rewritten(task_set("write_tests"), rewriter)
    assert one(made) == one(task_set("write_tests"))
    assert rewriter.num_asked == 0


def test_the_solution_is_not_in_the_question() -> None:
    questions: list[str] = []
    rewritten(task_set(), Rewriter("small", complete=lambda prompt: questions.append(prompt) or ISSUE))
    flat = "".join(questions[0].split())
    assert not [line for line in removed_lines(TOYS[2].task.edits, TOYS[2].task.solution) if line in flat]


def test_rewriting_is_paid_through_a_ledger_once(tmp_path: Path) -> None:
    teachers = TeacherServer()
    with serving(teachers) as url:
        for _ in range(2):
            rewritten(task_set(), paid_model(Rewriter, "rewrite", f"{url}#small", 1.0, tmp_path, MAX_TOKENS))
        poor = paid_model(Rewriter, "rewrite", f"{url}#large", 0.000001, tmp_path / "poor", MAX_TOKENS)
        assert rewritten(task_set(), poor)[1] == {"not asked or no answer": 1}
    assert sum(bill.requests for bill in teachers.bills.values()) == 1
    with Ledger(tmp_path / "rewrite.sqlite") as ledger:
        assert ledger.budget().settled == teachers.billed > 0


def test_a_model_without_a_cap_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = [
        "tasks",
        "make",
        str(tmp_path),
        "--repo",
        "me/t",
        "--to",
        str(tmp_path / "out"),
        "--rewrite",
        "http://x/v1#m",
    ]
    with pytest.raises(exits.UsageError, match="--rewrite-max-usd"):
        root.main(words, standalone_mode=False)
