"""Failures that look like the model's, where what the session showed before speaks for it."""

# a case is one line

from __future__ import annotations

from dataclasses import replace

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.records import Message
from composer_hub.session import Session
from tests.errors.sessions import Made, flag, session_of, shell, sites


def doubted(*made: Made) -> list[str]:
    return [site.rule for site in sites(*made) if site.blame != "model"]


GONE = "Error: ENOENT: no such file or directory, access '/w/docs/plan.md'"


@pytest.mark.parametrize(("task", "given"), [
    ("Continue with docs/plan.md.", True),
    ("Read `/w/docs/plan.md` first", True),
    ("Continue with other/docs/plan.md.", False),
    ("Continue with docs/plan.mdx and with the docs.", False),
    ("Continue with plan.md.", False),  # which folder it is in was for the model to find out
])  # fmt: skip
def test_a_path_that_the_task_names_is_not_a_mistake(task: str, given: bool) -> None:
    made = session_of(("Read", {"file_path": "/w/docs/plan.md"}, GONE, flag(is_error=True)))
    messages = (Message("user", task), *made.trace.messages[1:])
    (site,) = find_errors(Session(replace(made.trace, cwd="/w", messages=messages), made.flags)).steps[0].error_sites
    assert (site.rule, site.blame) == (("doubt.path_not_found", "env") if given else ("file.enoent", "model"))


def test_a_bare_name_in_the_task_counts_unless_the_session_finds_it_elsewhere() -> None:
    for other, rule in (("/w/a.md", "doubt.path_not_found"), ("/w/docs/plan.md", "file.enoent")):
        gone = ("Read", {"file_path": "/w/plan.md"}, GONE, flag(is_error=True))
        made = session_of(gone, ("Read", {"file_path": other}, "text", flag(is_error=False)))
        messages = (Message("user", "Continue with `plan.md`."), *made.trace.messages[1:])
        steps = find_errors(Session(replace(made.trace, cwd="/w", messages=messages), made.flags)).steps
        assert [site.rule for step in steps for site in step.error_sites] == [rule]


def test_a_program_that_worked_before_or_that_a_script_needs_is_not_a_mistake() -> None:
    missing = shell("gh pr list", "zsh:1: command not found: gh", flag(exit_code=127))
    assert doubted(missing) == []
    assert doubted(shell("gh auth status", "ok", flag(exit_code=0)), missing) == ["doubt.command_not_found"]
    head = "/bin/bash: line 1: head: command not found"
    assert doubted(shell("web | head -5", head, flag(exit_code=127))) == ["doubt.command_not_found"]
    assert doubted(shell("for path in a b; do web $path | head; done", head, flag(exit_code=127))) == []
    cmdlet = (
        "{0}: The term '{0}' is not recognized as a name of a cmdlet, function, script file, or executable program."
    )
    assert doubted(shell("cd board; go test ./...", cmdlet.format("go"), flag(exit_code=1))) == []
    assert doubted(shell("./build.ps1", cmdlet.format("go"), flag(exit_code=1))) == ["doubt.command_not_found"]
    script = "building\n./build.sh: line 3: jq: command not found"
    assert doubted(shell("./build.sh", script, flag(exit_code=1))) == ["doubt.command_not_found"]


def test_a_complaint_about_a_line_that_the_command_does_not_have_is_not_a_mistake() -> None:
    parse = "(eval):{}: parse error near `end'"
    assert doubted(shell("rg 'end' src", parse.format(5), flag(exit_code=1))) == ["doubt.usage_error"]
    assert doubted(shell("if x\nthen end", parse.format(2), flag(exit_code=1))) == []


def test_a_look_is_not_a_mistake() -> None:
    gone = "Path not found: /w/agents"
    assert doubted(("ls", {"path": "agents"}, gone, flag(is_error=True))) == ["doubt.path_not_found"]
    listed = "ls: cannot access 'm': No such file or directory\ncat: m/a.md: No such file or directory"
    assert doubted(shell("ls m 2>&1 | head; cat m/a.md 2>&1 | head", listed)) == ["doubt.path_not_found"]
    usage = "usage: agent <subcommand> [args]"
    assert doubted(shell("agent", usage, flag(exit_code=1))) == ["doubt.usage_error"]
    assert doubted(shell("agent list x", usage, flag(exit_code=1))) == []


def test_a_call_that_says_it_looks_for_a_file_is_not_a_mistake() -> None:
    for words, rules in (("See if the page exists", ["doubt.path_not_found"]), ("Read the page", [])):
        told = {"command": "cat docs/a.md", "description": words}
        assert doubted(("Bash", told, "cat: docs/a.md: No such file or directory", flag(exit_code=1))) == rules


def test_an_agent_that_the_task_names_is_not_a_mistake() -> None:
    words = "Agent type 'deep-review' not found. Available agents: Explore, Plan"
    made = session_of(("Agent", {"subagent_type": "deep-review"}, words, flag(is_error=True)))
    for task, blame in (("Launch `deep-review` for bugs.", "env"), ("Launch a deep review for bugs.", "model")):
        messages = (Message("user", task), *made.trace.messages[1:])
        (site,) = find_errors(Session(replace(made.trace, messages=messages), made.flags)).steps[0].error_sites
        assert site.blame == blame


def test_a_program_that_is_asked_for_its_version_is_looked_for() -> None:
    missing = "zsh:1: command not found: mysql"
    assert doubted(shell("mysql --version", missing, flag(exit_code=127))) == ["doubt.command_not_found"]
    assert doubted(shell("mysql -u root", missing, flag(exit_code=127))) == []
