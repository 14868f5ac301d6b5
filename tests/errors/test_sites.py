"""The site of one call: each rule's own example, and texts that only look like one."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import json

import pytest

from composer_hub.errors import exits as error_exits
from composer_hub.errors.rules import ANCHORS, STATUSES, canonical_kind
from composer_hub.errors.vocabulary import KINDS
from tests.errors.examples import EXITS, GO_FAIL, HARNESS, REPORTS, TABLES, TEXTS
from tests.errors.sessions import FILE, TRACEBACK, blames, flag, shell, sites


@pytest.mark.parametrize("table", TABLES)
def test_every_rule_has_an_example(table: str) -> None:
    rules, examples = TABLES[table]
    assert {rule.rule_id for rule in rules} == {example[0] for example in examples}


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "text"), HARNESS, ids=[f"{i}-{one[0]}" for i, one in enumerate(HARNESS)]
)
def test_each_sentence_of_a_harness_matches_its_rule(rule: str, tool: str, arguments: object, text: str) -> None:
    expected = next(one for one in ANCHORS if one.rule_id == rule)
    (site,) = sites((tool, arguments, text, None))
    assert (site.rule, site.kind, site.source) == (rule, expected.kind, "anchor")
    assert site.blame in (*blames(site.kind), expected.blame)
    (flagged,) = sites((tool, arguments, text, flag(is_error=True)))
    assert (flagged.kind, flagged.source) == (site.kind, "flag")


@pytest.mark.parametrize(
    ("rule", "command", "code", "output"), EXITS, ids=[f"{i}-{one[0]}" for i, one in enumerate(EXITS)]
)
def test_each_failed_command_matches_its_rule(rule: str, command: str, code: int, output: str) -> None:
    expected = next(one for one in error_exits.EXITS if one.rule_id == rule)
    (site,) = sites(shell(command, output, flag(exit_code=code)))
    assert (site.rule, site.kind, site.source) == (rule, expected.kind, "exit")
    assert site.blame in blames(site.kind)


@pytest.mark.parametrize(("command", "output", "kind"), [
    ("ls *.foo", "(eval):1: no matches found: *.foo", "nonzero_empty"),
    ("rm -f /tmp/a.txt && ls -la /tmp/a*.txt 2>&1", "(eval):1: no matches found: /tmp/a*.txt", "nonzero_empty"),
    ("wc -l src/*.foo", "(eval):1: no matches found: src/*.foo", "path_not_found"),
    ("ls .git/gc.log 2>&1", "ls: .git/gc.log: No such file or directory", "nonzero_empty"),
    ("ls .git/gc.log", "ls: .git/gc.log: No such file or directory", "nonzero_empty"),
    ("cat .git/gc.log", "cat: .git/gc.log: No such file or directory", "path_not_found"),
    ("gofmt -l ./cmd/...", "stat ./cmd/...: no such file or directory", "path_not_found"),
])  # fmt: skip
def test_a_look_that_finds_nothing_is_no_mistake(command: str, output: str, kind: str) -> None:
    (site,) = sites(shell(command, output, flag(exit_code=1)))
    assert site.kind == kind


def test_a_look_whether_a_path_is_gone_is_not_a_wrong_path() -> None:
    output = "Exit code 1\nls: docs: No such file or directory"
    (site,) = sites(shell("mv docs/a.md a.md && rmdir docs && ls docs 2>&1", output))
    assert (site.kind, site.rule) == ("nonzero_empty", "exit.looked")


HARNESS_EXITS = {
    "claude_code": ("Bash", "command", "Exit code {code}\n{output}"),
    "codex": ("exec_command", "cmd", "Command: /bin/zsh -lc x\nChunk ID: 266e25\nWall time: 0.0000 seconds\nProcess exited with code {code}\nOriginal token count: 0\nOutput:\n{output}"),
    "mini": ("bash", "command", "<returncode>{code}</returncode>\n<output>\n{output}</output>"),
    "pi": ("bash", "command", "{output}\n\n\nCommand exited with code {code}"),
    "openhands": ("terminal", "command", "{output}\n[The command completed with exit code {code}.]"),
    "codex_json": ("shell", "command", None),
}  # fmt: skip


@pytest.mark.parametrize("harness", HARNESS_EXITS)
def test_an_exit_code_is_read_from_where_each_harness_writes_it(harness: str) -> None:
    tool, key, form = HARNESS_EXITS[harness]
    output = "cat: nope: No such file or directory"
    wrote = {code: form.format(code=code, output=output) if form else json.dumps({"output": output, "metadata": {"exit_code": code, "duration_seconds": 0.1}}) for code in (0, 1)}  # fmt: skip
    assert sites((tool, {key: "cat nope"}, wrote[0], None)) == []
    (site,) = sites((tool, {key: "cat nope"}, wrote[1], None))
    assert (site.kind, site.source, site.rule) == ("path_not_found", "exit", "exit.path")


@pytest.mark.parametrize(("rule", "command", "output"), TEXTS, ids=[one[0] for one in TEXTS])
def test_text_rules_speak_only_when_asked_for(rule: str, command: str, output: str) -> None:
    made = shell(command, output)
    (site,) = sites(made, text_rules=True)
    assert (site.rule, site.source) == (rule, "text")
    assert site.confidence < 0.9
    assert not [site for site in sites(made) if site.source == "text"]


PROVEN = [
    ("foo x", "bash: line 1: foo: command not found", "command_not_found"),
    ("cat nope", "cat: nope: No such file or directory", "path_not_found"),
    ("cd web && ls x; echo ok", "/usr/bin/bash: line 1: cd: web: No such file or directory\nok", "path_not_found"),
    ("grep -n a src/b.js | head -3", "grep: src/b.js: No such file or directory", "path_not_found"),
    ('rg -n "a|`b" README.md | head', 'zsh:1: unmatched "', "usage_error"),
    ("grep -rn a app --include=*.py | head -4", "(eval):1: no matches found: --include=*.py", "path_not_found"),
    ("cat -A x.txt | head -2", "cat: illegal option -- A\nusage: cat [-benstuv]", "usage_error"),
]


@pytest.mark.parametrize(("command", "output", "kind"), PROVEN)
def test_a_complaint_that_names_a_program_and_a_word_of_the_command_needs_no_exit_code(
    command: str, output: str, kind: str
) -> None:
    (site,) = sites(shell(command, output))
    assert (site.kind, site.source) == (kind, "text")


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cat build.log", "cat: nope: No such file or directory"),  # of another path
        ("tail -5 ci.log", "bash: line 3: yq: command not found"),  # of another program
        ("ls CHANGELOG* | head -3", "ls: CHANGELOG*: No such file or directory"),  # a look
        ("rg -n a src/*.foo | head -3", "(eval):1: no matches found: src/*.foo"),  # a look
        ("cat VERSION || echo none", "cat: VERSION: No such file or directory\nnone"),  # expected
    ],
)
def test_a_complaint_about_anything_else_proves_nothing(command: str, output: str) -> None:
    assert sites(shell(command, output)) == []


@pytest.mark.parametrize(("rule", "command", "output"), REPORTS, ids=[f"{i}-{one[0]}" for i, one in enumerate(REPORTS)])
def test_a_report_of_failure_counts_although_a_pipe_hides_the_exit_code(rule: str, command: str, output: str) -> None:
    expected = next(one for one in error_exits.REPORTS if one.rule_id == rule)
    for told in (flag(is_error=False), flag(exit_code=0), None):
        (site,) = sites(shell(command, output, told))
        assert (site.rule, site.kind, site.source) == (rule, expected.kind, "text")
        assert site.blame in blames(site.kind)


NO_REPORTS = {
    "an exit code that nothing hides": ("go test ./...", GO_FAIL),
    "a pipe that fails with its first part": ("set -o pipefail && go test ./... | tail", GO_FAIL),
    "a file of a report": ("cat test.log | grep FAIL", GO_FAIL),
    "a search behind a test that passed": ("make test && git log | head", "c376dc9 fix\n--- FAIL: is a line of a message"),
    "a passing run": ("go test ./... 2>&1 | tail", "ok  \texample.com/x\t0.01s"),
    "warnings": ("make build 2>&1 | tail", "a.c:3:1: warning: unused variable"),
    "nothing that remains": ("ruff check --fix . | tail", "Found 3 errors (3 fixed, 0 remaining)."),
    "warnings of eslint": ("npx eslint . | tail", "\u2716 3 problems (0 errors, 3 warnings)"),
    "no issues": ("golangci-lint run 2>&1 | tail", "0 issues."),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_REPORTS)
def test_a_hidden_exit_code_is_no_failure_without_a_report(name: str) -> None:
    command, output = NO_REPORTS[name]
    assert sites(shell(command, output, flag(is_error=False))) == []


LOOK_ALIKES = {
    "a file whose content is a traceback": ("Read", FILE, TRACEBACK),
    "a numbered file full of errors": ("Read", FILE, "     1\traise ValueError('Error: No such file or directory')\n     2\texcept Exception: ..."),
    "a raw file that starts like a harness": ("read", {"path": "notes.md"}, "File not found: what to do\n" + "text\n" * 400),
    "search results that quote errors": ("Grep", {"pattern": "Error"}, "a.go:4:\treturn fmt.Errorf(\"command not found: %s\", x)"),
    "names of tests": ("Bash", {"command": "ls tests"}, "test_error_handling.py\ntest_failed_login.py\nexception_test.go"),
    "a log printed by cat": ("Bash", {"command": "cat build.log"}, "error: could not compile\nbash: foo: command not found\n" + TRACEBACK),
    "source printed by sed": ("exec_command", {"cmd": "sed -n 1,9p a.py"}, "raise SystemExit(1)\n" + TRACEBACK),
    "a page about errors": ("WebFetch", {"url": "u"}, "Request failed with status code 404 is a common message. " + "It means … " * 200),
    "a subagent that reports errors": ("Task", {"prompt": "x"}, "File does not exist errors come from the loader. " * 60),
    "git log with fix messages": ("Bash", {"command": "git log --oneline"}, "c376dc9 fix: fatal: not a git repository\n33d2f7e Error handling"),
    "passing tests": ("Bash", {"command": "pytest"}, "tests/test_errors.py ....\n=== 4 passed in 0.1s ===\n"),
    "an exit code quoted in a file": ("Read", FILE, "Exit code 1\nmeans failure"),
    "an exit code in the middle": ("Bash", {"command": "cat ci.log"}, "starting\n" + "line\n" * 300 + "Process exited with code 1\nOutput:\n" + "more\n" * 300),
    "an empty result": ("Bash", {"command": "true"}, ""),
    "a plan update": ("TodoWrite", {"todos": []}, "Todos have been modified successfully."),
    "an edit that worked": ("Edit", FILE, "The file /repo/a.py has been updated. Here's the result of running `cat -n` on a snippet"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_text_that_resembles_an_error_is_not_one(name: str) -> None:
    tool, arguments, text = LOOK_ALIKES[name]
    assert sites((tool, arguments, text, None), text_rules=True) == []
    assert sites((tool, arguments, text, flag(is_error=False)), text_rules=True) == []


def test_a_tool_that_ran_well_may_hold_a_command_that_did_not() -> None:
    (site,) = sites(
        ("terminal", {"command": "cat nope"}, "cat: nope: No such file or directory", flag(is_error=False, exit_code=1))
    )
    assert (site.kind, site.source) == ("path_not_found", "exit")


def test_a_typed_success_beats_every_text() -> None:
    assert sites(("Edit", FILE, "String to replace not found in file.", flag(is_error=False))) == []
    assert sites(shell("x", "Exit code 1", flag(exit_code=0))) == []


def test_a_pipe_into_tail_hides_a_failure_that_text_rules_find() -> None:
    made = shell("python a.py 2>&1 | tail -3", TRACEBACK, flag(is_error=False))
    assert [site.kind for site in sites(made, text_rules=True)] == ["program_exception"]
    assert sites(shell("python a.py", TRACEBACK, flag(is_error=False)), text_rules=True) == []


def test_a_flag_without_known_words_is_a_tool_error_of_the_environment() -> None:
    (site,) = sites(("mcp__x__y", {}, "boom", flag(is_error=True)))
    assert (site.kind, site.blame, site.source, site.rule) == ("tool_error", "env", "flag", "flag.error")


@pytest.mark.parametrize("status", sorted({*STATUSES, *KINDS}))
def test_a_typed_word_names_the_kind(status: str) -> None:
    kind = canonical_kind(status) if canonical_kind(status) in KINDS else STATUSES[status]
    (site,) = sites(("foo", {}, "boom", flag(is_error=True, status=status)))
    assert (site.kind, site.source) == (kind, "flag")


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        ("user-rejected", "user_rejected"),
        ("permission-rule", "policy_denied"),
        ("hook", "policy_denied"),
        ("", "policy_denied"),
    ],
)
def test_a_denial_is_the_user_s_only_if_the_harness_records_it(detail: str, kind: str) -> None:
    (site,) = sites(("foo", {}, "No.", flag(is_error=True, status="denied", detail=detail)))
    assert site.kind == kind
    (said,) = sites(
        (
            "foo",
            {},
            "The user doesn't want to proceed with this tool use.",
            flag(is_error=True, status="denied", detail=detail),
        )
    )
    assert said.kind == "user_rejected"


def test_arguments_that_do_not_parse_are_a_json_error() -> None:
    (site,) = sites(("foo", '{"a": 1,}', "bad request", flag(is_error=True)))
    assert site.kind == "json_decode"
    assert sites(("apply_patch", "*** Begin Patch", "Success.", flag(is_error=False))) == []


def test_older_names_lead_to_the_same_kind() -> None:
    assert canonical_kind("type_error") == "schema_validation"
    assert canonical_kind("runtime_error") == "runtime_exception"
    assert {"tool_not_found", "json_decode", "repeated_failure"} <= set(KINDS)
