"""The model is to blame only if the tool's message or the session proves it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from composer_hub.errors.find import find_errors
from composer_hub.records import ErrorSite, Message
from composer_hub.session import Session
from tests.errors.sessions import Made, flag, session_of, shell, sites

FAILED, WORKED = flag(exit_code=1), flag(exit_code=0)
GONE = ("Read", {"file_path": "/w/docs/plan.md"}, "File does not exist.", flag(is_error=True))
FOUND = ("Read", {"file_path": "/w/site/docs/plan.md"}, "text", flag(is_error=False))


def after(task: str, *made: Made) -> ErrorSite:
    """Return the first site of calls that come after a task."""
    session = session_of(*made)
    trace = replace(session.trace, cwd="/w", messages=(Message("user", task), *session.trace.messages[1:]))
    return find_errors(Session(trace, session.flags)).steps[0].error_sites[0]


def test_a_path_is_the_models_mistake_only_if_another_one_works() -> None:
    assert after("Go on.", GONE).blame == "unknown"
    assert after("Go on.", GONE, FOUND).blame == "model"


MISTAKES = [
    ("python a.py", "zsh:1: command not found: python", "python3 a.py"),
    ("git -C sub add a.py", "fatal: not a git repository", ""),
    ("sed -n 1,5p src/a.py", "sed: src/a.py: No such file or directory", "cd /w/lib && sed -n 1,5p src/a.py"),
]


@pytest.mark.parametrize(("command", "output", "then"), MISTAKES)
def test_a_command_is_the_models_mistake_only_if_another_one_works(command: str, output: str, then: str) -> None:
    alone = sites(shell(command, output, FAILED))
    assert [site.blame for site in alone] == ["unknown"]
    corrected = sites(shell(command, output, FAILED), shell(then or "ls", "done", WORKED))
    assert [site.blame for site in corrected] == ["model" if then else "unknown"]


def test_a_later_call_that_fails_too_proves_nothing() -> None:
    still_gone = (FOUND[0], FOUND[1], "File does not exist.", flag(is_error=True))
    assert after("Go on.", GONE, still_gone).blame == "unknown"


REFUSED = [  # the program names a word of the command, whatever it builds or tests
    ("mix tests a.exs", '** (Mix) The task "tests" could not be found. Did you mean "test"?'),
    ("bazel test //a:b_tests", "ERROR: no such target '//a:b_tests': not declared (did you mean b_test?)"),
    ("flutter tests a.dart", 'Could not find a command named "tests".\n\nDid you mean one of these?\n  test'),
    ("composer instal", 'Command "instal" is not defined.\n\n  Did you mean one of these?\n      install'),
    ("sbt tests", "[error] Not a valid command: tests"),
    ("cargo clippy -p core", "error: package ID `core` did not match any packages\n\n\tDid you mean `cores`?"),
    ("bazel query //a --notool_dep", "ERROR: --notool_dep :: Unrecognized option: --notool_dep"),
    ("jsonlint --type=rb src", "jsonlint: unrecognized file type: rb"),
]


@pytest.mark.parametrize(("command", "output"), REFUSED)
def test_a_word_that_a_program_does_not_know_is_the_models_mistake(command: str, output: str) -> None:
    (site,) = sites(shell(command, output, FAILED))
    assert (site.kind, site.blame) == ("usage_error", "model")


@pytest.mark.parametrize(("command", "output"), [
    ("mix test", "** (CompileError) undefined function test_me/0. Did you mean: test_it/0"),
    ("ocamlfind ocamlopt lib.ml", 'File "lib.ml", line 3:\nError: Unbound value foo\nHint: Did you mean fob?'),
    ("gradle build", "e: A.kt: Unresolved reference 'biuld'. Did you mean 'build'?"),
    ("npm run build", "error during build:\nCould not resolve './Cart' from src/a.js. Did you mean './cart'?"),
    ("convert a.xyz b.png", "convert: Unsupported file type: a.xyz"),
])  # fmt: skip
def test_a_program_that_does_not_know_a_word_of_a_file_leaves_the_fault_open(command: str, output: str) -> None:
    (site,) = sites(shell(command, output, FAILED))
    assert (site.kind, site.blame) != ("usage_error", "model")


def test_a_call_that_works_later_as_it_is_was_right() -> None:
    failed = shell("npm run build", "Can't resolve 'build'. Did you mean './build'?", FAILED)
    assert [site.blame for site in sites(failed)] == ["model"]
    assert [site.blame for site in sites(failed, shell("npm run build", "done", WORKED))] == ["unknown"]


def test_a_later_call_of_another_tool_does_not_excuse_arguments_that_this_one_refused() -> None:
    refused = ("Write", {"file_path": "/w/a"}, "InputValidationError: `content` is missing", flag(is_error=True))
    read = ("Read", {"file_path": "/w/a"}, "text", flag(is_error=False))
    assert [site.blame for site in sites(refused, read)] == ["model"]


VALIDATED = [
    ("gh pr diff 1 --stat", "unknown flag: --stat", "model"),
    ("gh pr list --json number,checks", 'Unknown JSON field: "checks"', "model"),
    ("make all", "make: *** No rule to make target 'vendor'", "unknown"),  # a rule of the project wants it
    ("iconv -o b a", "iconv: unrecognized option: o\nBusyBox v1.36.1", "model"),
    ("agent", "usage: agent <subcommand> [args]", "unknown"),  # a look
    (
        "go build -o /tmp/app . && /tmp/app frob",
        'Error: unknown command "frob" for "app"',
        "unknown",
    ),  # its own program
]


@pytest.mark.parametrize(("command", "output", "blame"), VALIDATED)
def test_a_program_that_refuses_a_word_of_the_command_proves_the_mistake(command: str, output: str, blame: str) -> None:
    assert [site.blame for site in sites(shell(command, output, FAILED))] == [blame]


def test_a_message_that_offers_the_right_words_proves_the_mistake() -> None:
    offer = ("Read", {"file_path": "/w/a.yml"}, "File does not exist. Did you mean a.yaml?", flag(is_error=True))
    assert after("Go on.", offer).blame == "model"


@pytest.mark.parametrize(("task", "blame"), [
    ("Continue with docs/plan.md.", "unknown"),
    ("Read `/w/docs/plan.md` first", "unknown"),
    ("Continue with other/docs/plan.md.", "model"),
    ("Continue with docs/plan.mdx and with the docs.", "model"),
    ("Continue with plan.md.", "model"),  # which folder it is in was for the model to find out
])  # fmt: skip
def test_a_path_that_the_task_names_is_not_the_models(task: str, blame: str) -> None:
    assert after(task, GONE, FOUND).blame == blame


def test_an_agent_or_an_option_that_the_task_or_a_document_names_is_not_the_models() -> None:
    words = "Agent type 'deep-review' not found. Available agents: Explore, Plan"
    launch = ("Agent", {"subagent_type": "deep-review"}, words, flag(is_error=True))
    assert after("Launch `deep-review` for bugs.", launch).blame == "unknown"
    assert after("Launch a deep review for bugs.", launch).blame == "model"
    skill = ("Read", {"file_path": "/w/SKILL.md"}, "Run `tool check --fast`.", flag(is_error=False))
    refused = shell("tool check --fast", "unknown flag: --fast", FAILED)
    assert [site.blame for site in sites(skill, refused)] == ["unknown"]
    assert [site.blame for site in sites(refused)] == ["model"]


def test_the_file_of_an_edit_may_be_named() -> None:
    edit = {"file_path": "/w/docs/plan.md", "old_string": "a", "new_string": "b"}
    missed = ("Edit", edit, "String to replace not found in file.\nString: a", flag(is_error=True))
    assert after("Change docs/plan.md.", missed).blame == "model"


READ = ("Read", {"file_path": "/w/a.py"}, "     1\tdef f():\n     2\t    return 1", flag(is_error=False))


@pytest.mark.parametrize(("old", "blame"), [
    ("def f():\n    return 1", "unknown"),  # the file had it when it was read: somebody changed it
    ("def f():\n    return 2", "model"),
])  # fmt: skip
def test_a_text_that_the_file_had_when_it_was_read_is_not_the_models(old: str, blame: str) -> None:
    edit = {"file_path": "/w/a.py", "old_string": old, "new_string": "x"}
    missed = ("Edit", edit, f"String to replace not found in file.\nString: {old}", flag(is_error=True))
    assert [site.blame for site in sites(READ, missed)] == [blame]
    assert [site.blame for site in sites(missed, missed)] == ["model", "model"]  # the failed edit quotes it


def test_a_patch_is_compared_by_the_lines_that_its_message_quotes() -> None:
    patch = "*** Begin Patch\n*** Update File: /w/a.py\n@@\n def f():\n-    return 1\n+    return 2\n*** End Patch"
    for lines, blame in (("def f():\n    return 1", "unknown"), ("def f():\n    return 3", "model")):
        words = f"apply_patch verification failed: Failed to find expected lines in /w/a.py:\n{lines}"
        missed = ("apply_patch", {"input": patch}, words, flag(is_error=True))
        assert [site.blame for site in sites(READ, missed)] == [blame]


def test_who_changed_a_file_since_it_was_read_is_unknown() -> None:
    words = "File has been modified since read, either by the user or by a linter."
    edit = ("Edit", {"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}, words, flag(is_error=True))
    worked = (*edit[:2], "done", flag(is_error=False))
    assert [site.blame for site in sites(edit, READ, worked)] == ["unknown"]
