"""Hints: each writer says what it should, at the site it should, and stays silent elsewhere."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.action import Action, actions_of
from composer_hub.errors.context import LaterCall, SiteContext, context_of
from composer_hub.errors.corrections import (
    FINDERS,
    Finder,
    What,
    complaint_of,
    correction_of,
    failure_of,
    is_other_path,
    proofs,
    quotes_wrong,
)
from composer_hub.errors.find import find_errors
from composer_hub.errors.vocabulary import KINDS
from composer_hub.exits import UsageError
from composer_hub.hints import writers as hints
from composer_hub.hints.writers import (
    from_environment,
    from_hindsight,
    from_quoted,
    from_user,
    worked_call,
    write_hint,
    write_hints,
)
from composer_hub.ingest.reading import Reading, ReadOptions
from composer_hub.records import ErrorSite, Hint, Message, Step, ToolCall, Trace
from composer_hub.session import Session
from tests.hints import digests
from tests.quick import cases

STABLE = cases(100)


def trace_of(*made: tuple[str, object, str], cwd: str = "/repo", tools: tuple[dict[str, object], ...] = ()) -> Trace:
    """A linear trace with its error sites: (tool, arguments, result), a result of None or a user's words as tool "user"."""
    messages = [Message("user", "Do it.")]
    steps: list[Step] = []
    for tool, arguments, result in made:
        if tool == "user":
            messages.append(Message("user", result))
            continue
        action, call_id = len(messages), f"call-{len(steps)}"
        messages.append(Message("assistant", tool_calls=(ToolCall(tool, arguments, call_id),)))
        messages.append(Message("tool", result, tool_call_id=call_id, name=tool))
        steps.append(Step(f"step-{len(steps)}", len(steps), action, ((0, action),), (action + 1,)))
    trace = Trace(
        "trace",
        "test",
        "session",
        tuple(messages),
        tuple(steps),
        cwd=cwd,
        tools=tools,
        tools_source="recorded" if tools else "seen",
        redaction="test",
    )
    return find_errors(Session(trace))


def texts(trace: Trace, *writers: hints.HintWriter, **switches: bool) -> list[str]:
    written = write_hints(trace, writers or None, **switches)
    return [hint.text for step in written.steps for hint in step.hints]


def site(kind: str, message: str = "", tool: str = "Edit") -> ErrorSite:
    return ErrorSite(kind, KINDS.get(kind, "model"), "flag", 1.0, "rule", tool, "call-0", message)


FILE = {"file_path": "/repo/a.py"}
NOT_READ = ("Edit", {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}, "File has not been read yet.")
EDITED = ("Edit", {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}, "The file has been updated.")
READ = ("Read", {"file_path": "/repo/a.py"}, "     1\tx")


def shell(command: str, output: str = "ok") -> tuple[str, object, str]:
    return ("Bash", {"command": command}, output)


def missing(path: str) -> tuple[str, object, str]:
    return shell(f"cat {path}", f"Exit code 1\ncat: {path}: No such file or directory")


def no_text(old: str) -> tuple[str, object, str]:
    return ("Edit", {**FILE, "old_string": old, "new_string": "y"}, "String to replace not found in file.")


def wrong_file(path: str) -> tuple[str, object, str]:
    return ("Read", {"file_path": path}, "File does not exist.")


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n def one():\n-    return 1\n+    return 2\n@@\n def two():\n-    {}\n+    return 3\n*** End Patch"
LOST = "apply_patch verification failed: Failed to find expected lines in a.py:\n def two():\n     return 2"

PROVEN = [
    # paths
    ([wrong_file("/repo/src/core/parser.py"), ("Read", {"file_path": "/repo/lib/parser.py"}, "x")], "Use /repo/lib/parser.py."),
    ([missing("docs/plan.md"), shell("cat notes/docs/plan.md")], "Use notes/docs/plan.md."),
    ([wrong_file("/repo/dist/env.mjs"), ("Read", {"file_path": "/repo/dist/env.js"}, "x")], "Use /repo/dist/env.js."),
    ([wrong_file("/repo/db/0000_*.sql"), ("Read", {"file_path": "/repo/db/0000_first.sql"}, "x")], "Use /repo/db/0000_first.sql."),
    ([wrong_file("/repo/web/forms/order.tsx"), shell("find . -name '*.tsx'", "./app/src/forms/order.tsx\n./app/cart.tsx")], "Use app/src/forms/order.tsx."),
    ([("Read", {"file_path": "/repo/src"}, "EISDIR: illegal operation on a directory, read"), ("Read", {"file_path": "/repo/src/a.py"}, "x")], "Use /repo/src/a.py."),
    ([shell("cp a.txt out/logs/a.txt", "Exit code 1\ncp: out/logs/a.txt: No such file or directory"), shell("mkdir -p out/logs && cp a.txt out/logs/a.txt")], "First run: mkdir -p out/logs"),
    ([shell("grep -rn a app --include=*.py | head -4", "(eval):1: no matches found: --include=*.py"), shell("grep -rn a app '--include=*.py' | head -4")], "Put it in quotes: '--include=*.py'."),
    ([missing("docs/plan.md"), shell("cd notes && cat docs/plan.md")], "Run it from notes."),
    # commands
    ([shell("npm run fmt", "Exit code 1\nnpm error Missing script: \"fmt\""), shell("npm run format")], "Use this command: npm run format"),
    ([wrong_file("/repo/order/cart.py"), ("Read", {"file_path": "/repo/orders/cart.py"}, "x")], "Use /repo/orders/cart.py."),
    ([shell("git log --onelin -3", "Exit code 128\nfatal: unrecognized argument: --onelin"), shell("git log --oneline -3")], "Use this command: git log --oneline -3"),
    ([shell("head -P 3 a.txt", "Exit code 1\nhead: illegal option -- P"), shell("head -n 3 a.txt")], "Use this command: head -n 3 a.txt"),
    ([shell("rg -n TVA --type=rb src", "Exit code 2\nrg: unrecognized file type: rb"), shell("rg -n TVA --type=ruby src")], "Use this command: rg -n TVA --type=ruby src"),
    ([shell("mix tests a.exs", 'Exit code 1\n** (Mix) The task "tests" could not be found. Did you mean "test"?'), shell("mix test a.exs")], "Use this command: mix test a.exs"),
    ([shell("hugo --minfy", "Exit code 1\nError: unknown flag: --minfy"), shell("hugo --minify")], "Use this command: hugo --minify"),
    ([shell("cargo test one two three", "Exit code 1\nerror: unexpected argument 'two' found\n\nUsage: cargo test"), shell("cargo test one")], "Use this command: cargo test one"),
    ([shell("gh api repos/x?page=1", "Exit code 1\nzsh:1: no matches found: repos/x?page=1"), shell("gh api 'repos/x?page=1'")], "Put it in quotes: 'repos/x?page=1'."),
    ([shell("python tool.py", "Exit code 127\nzsh: command not found: python"), shell("python3 tool.py")], "Use python3."),
    ([shell("tsc -p .", "Exit code 127\nzsh: command not found: tsc"), shell("npx tsc -p .")], "Use npx tsc."),
    ([shell("go test ./...", "Exit code 127\nzsh: command not found: go"), shell("/usr/local/go/bin/go test ./...")], "Use /usr/local/go/bin/go."),
    ([shell("git status", "Exit code 128\nfatal: not a git repository"), shell("cd /repo/app && git status")], "Run it from /repo/app."),
    ([shell("npm run fmt", "Exit code 1\nnpm error Missing script: \"fmt\""), shell("cd web && npm run fmt")], "Run it from web."),
    ([shell("git push orign topic", "Exit code 128\nfatal: 'orign' does not appear to be a git repository"), shell("git push origin topic")], "Use this command: git push origin topic"),
    # arguments
    ([("mcp__x__find", {"q": "a"}, "MCP error -32602: Input validation error: query is required"), ("mcp__x__find", {"query": "b"}, "ok")], 'Set query = "b".'),
    ([("Read", {"file_path": "/repo/big.txt"}, "File content (30000 tokens) exceeds maximum"), ("Read", {"file_path": "/repo/big.txt", "limit": 200, "offset": 1}, "x")], "Set limit = 200, offset = 1."),
    ([("ReadFile", {"path": "/repo/a.py"}, "No such tool available: ReadFile"), ("Read", {"file_path": "/repo/a.py"}, "x")], "Use the tool `Read`."),
    ([("Bash", {"command": "make", "timeout": 10}, "Exit code 143\nCommand timed out after 10s"), ("Bash", {"command": "make", "timeout": 600}, "ok")], "Set timeout = 600."),
    ([("Bash", {"cmd": "make"}, "InputValidationError: Bash failed due to the following issue:\nThe required parameter `command` is missing"), ("Bash", {"command": "make"}, "ok")], 'Set command = "make".'),
    ([("shell_command", {"command": "make"}, "No such tool available: shell_command"), ("Bash", {"command": "make"}, "ok")], "Use the tool `Bash`."),
    # edits
    ([NOT_READ, READ, EDITED], "First read /repo/a.py."),
    ([no_text("return a * b"), ("Edit", {**FILE, "old_string": "return a - b", "new_string": "y"}, "ok")], "The text there is:\nreturn a - b"),
    # the later text begins earlier: what comes before the failed text is not the answer
    ([no_text("for one in items:\n    total += one.price\n    count += 1\nreturn total"), ("Edit", {**FILE, "old_string": "def total_of(items):\n    total = count = 0\n    for one in items:\n    total += one.cost\n    count += 1\nreturn total", "new_string": "y"}, "ok")], "The text there is:\n    for one in items:\n    total += one.cost\n    count += 1"),
    ([no_text("import os\nimport sys\n\nPATH = os.curdir"), ("Edit", {**FILE, "old_string": "import os\nimport re\nimport sys\n\nPATH = os.curdir", "new_string": "y"}, "ok")], "The text there is:\nimport os\nimport re\nimport sys"),
    ([("Edit", {**FILE, "old_string": "x", "new_string": "y"}, "Found 2 matches of the string to replace, but replace_all is false."), ("Edit", {**FILE, "old_string": "x", "new_string": "y", "replace_all": True}, "ok")], "Set replace_all = true."),
    ([("Edit", {**FILE, "old_string": "return total_of(items)", "new_string": "y"}, "Found 2 matches of the string to replace, but replace_all is false."), ("Edit", {**FILE, "old_string": "def two():\n    return total_of(items)", "new_string": "y"}, "ok")], "The text there is:\ndef two():\n    return total_of(items)"),
    ([no_text("total = 1\nfor one in items:\n    total += one.price\nreturn total"), ("Edit", {**FILE, "old_string": "import os\nimport re\nimport sys\n\ntotal = 0\nfor one in items:\n    total += one.price\nreturn total", "new_string": "y"}, "ok")], "The text there is:\n\ntotal = 0\nfor one in items:"),
    ([no_text("for one in items:\n    total += one.price\nreturn total"), ("Edit", {**FILE, "old_string": "for one in items:\n    total += one.price\nreturn total / 2\nprint(1)\nprint(2)", "new_string": "y"}, "ok")], "The text there is:\n    total += one.price\nreturn total / 2\nprint(1)"),
    ([("apply_patch", {"input": PATCH.format("return 2")}, LOST), ("apply_patch", {"input": PATCH.format("return 22")}, "ok")], "The text there is:\ndef two():\n    return 22"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "text"), PROVEN, ids=[text for _, text in PROVEN])
def test_hindsight_says_what_worked_instead(made: list[tuple[str, object, str]], text: str) -> None:
    trace = trace_of(*made)
    assert texts(trace, from_hindsight)[:1] == [text]
    site = next(one for one in trace.steps[0].error_sites)
    found = correction_of(context_of(trace, 0, site, actions_of(trace)))
    assert found is not None
    assert found.right in text


def _proof_of(made: list[tuple[str, object, str]]) -> Iterator[tuple[str, bool, Finder]]:
    """Yield the kind of a session's first failure, whether it is a shell's, and the finder of its correction."""
    trace = trace_of(*made)
    context = context_of(trace, 0, trace.steps[0].error_sites[0], actions_of(trace))
    failure = failure_of(context)
    assert failure is not None
    for find, _ in proofs(failure, context.later):
        yield failure.kind, failure.action.family == "shell", find
        return


def test_every_finder_of_every_kind_has_a_session_that_proves_it() -> None:
    proven = {proof for made, _ in PROVEN for proof in _proof_of(made)}
    listed = {(kind, not at, find) for kind, places in FINDERS.items() for at in (0, 1) for find in places[at]}
    missing = sorted((kind, "shell" if shell else "other tool", find.__name__) for kind, shell, find in listed - proven)
    assert not missing, f"Add a session to PROVEN for {missing}."


def test_every_kind_of_correction_has_a_sentence() -> None:
    assert set(get_args(What)) <= hints.SENTENCES.keys()


SILENT = {
    "a file that was made in between": [missing("docs/plan.md"), shell("cp x notes/plan.md"), shell("cat notes/plan.md")],
    "a file that the later call makes": [wrong_file("/repo/src/plan.md"), ("Write", {"file_path": "/repo/docs/plan.md", "content": "x"}, "ok")],
    "a file of the same common name elsewhere": [wrong_file("/repo/src/index.ts"), ("Read", {"file_path": "/repo/test/web/index.ts"}, "x")],
    "a file of a sibling folder": [missing("agents/agent-pi/net_test.go"), shell("cat agents/agent-kiro/net_test.go")],
    "an option that was only left out": [shell("git show a1 --no-stat", "Exit code 128\nfatal: unrecognized argument: --no-stat"), shell("git show a1")],
    "a listed file of another folder": [wrong_file("/repo/session/state_test.go"), shell("find .", "./cmd/cli/state_test.go")],
    "a name that two listed files have": [wrong_file("/repo/forms/a.tsx"), shell("find .", "./a/forms/a.tsx\n./b/forms/a.tsx")],
    "a pattern that only asks for the name": [missing("src/editor.ts"), shell("find src -name editor.ts", "")],
    "the same path in another command": [missing("docs/a.md"), shell("cat -n docs/a.md")],
    "another file": [missing("docs/plan.md"), shell("cat docs/other.md")],
    "a command that hides its exit code": [shell("gh pr vew 12", 'Exit code 1\nunknown command "vew"'), shell("gh pr view 12 || true")],
    "a command that destroys something": [shell("git push orign topic", "Exit code 1\nfatal: 'orign' does not appear to be a git repository"), shell("git push --force origin topic")],
    "a command that asks for help": [shell("gh pr vew 12", 'Exit code 1\nunknown command "vew"'), shell("gh pr --help")],
    "a git command that another one made possible": [shell("git push origin topic", "Exit code 1\nerror: src refspec topic does not match any"), shell("git checkout -b topic"), shell("git push -u origin topic")],
    "another question to the same program": [shell("npm run fmt", "Exit code 1\nnpm error Missing script: \"fmt\""), shell("npm run test -- --watch unit")],
    "a program in a longer quoted text": [shell("doctor --fix all", "Exit code 127\nzsh: command not found: doctor"), shell("fish -lc 'doctor --fix all'")],
    "another program": [shell("rg x src", "Exit code 127\nzsh: command not found: rg"), shell("grep -r x src")],
    "a program that was installed and is spelled alike": [shell("tsc -p .", "Exit code 127\nzsh: command not found: tsc"), shell("npm i tsc"), shell("tsc -p .")],
    "a wrapped program that was installed": [shell("bundle exec rspec a", "Exit code 127\nbundler: command not found: rspec"), shell("bundle install && bundle exec rspec a")],
    "a command that works in another folder": [shell("npm run fmt", "Exit code 1\nnpm error Missing script: \"fmt\""), shell("cd web"), shell("npm run format")],
    "a path from another folder": [missing("docs/plan.md"), shell("cd notes && cat docs/old/plan.md")],
    "a text that only grew": [no_text("one\ntwo"), ("Edit", {**FILE, "old_string": "one\ntwo\nthree", "new_string": "y"}, "ok")],
    "a folder of a folder": [("Read", {"file_path": "/repo"}, "EISDIR: illegal operation on a directory, read"), shell("ls /repo/src")],
    "a text that grew before and shrank after": [no_text("two = 2\nthree = 3\nfour = 4"), ("Edit", {**FILE, "old_string": "one = 1\ntwo = 2\nthree = 3", "new_string": "y"}, "ok")],
    "another edit of the file": [no_text("return a * b"), ("Edit", {**FILE, "old_string": "import os", "new_string": "y"}, "ok")],
    "a text that an edit in between wrote": [no_text("return a * b"), EDITED, ("Edit", {**FILE, "old_string": "return a - b", "new_string": "z"}, "ok")],
    "an edit that fails after the read as well": [NOT_READ, READ, NOT_READ, READ, NOT_READ, EDITED],
    "another query": [("mcp__x__find", {"query": "a"}, "MCP error -32602: bad"), ("mcp__x__find", {"query": "b"}, "ok")],
    "a success that comes too late": [missing("docs/plan.md"), *[shell(f"ls {n}") for n in range(10)], shell("cat notes/docs/plan.md")],
    "a later failure": [NOT_READ, NOT_READ],
    "a site that is not the model's fault": [("Edit", FILE, "The user doesn't want to proceed with this tool use."), EDITED],
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_hindsight_is_silent_about(name: str) -> None:
    assert texts(trace_of(*SILENT[name]), from_hindsight) == []


def test_hindsight_never_looks_into_another_branch() -> None:
    trace = trace_of(NOT_READ, READ, EDITED)
    first, second, third = trace.steps
    rewound = Step("s", 2, third.action, ((0, 1), (second.action, third.action)), third.results)
    branched = Trace("t", "x", "s", trace.messages, (first, second, rewound))
    assert texts(branched, from_hindsight) == []


@pytest.mark.parametrize(("made", "words"), [
    (missing("docs/plan.md"), ("docs/plan.md",)),
    (wrong_file("/repo/x.py"), ("/repo/x.py",)),
    (shell("cd web && tsc -p .", "Exit code 127\nzsh: command not found: tsc"), ("tsc",)),
    (shell("git log --onelin", "Exit code 128\nfatal: unrecognized argument: --onelin"), ("--onelin",)),
    (shell("true", "Exit code 2\nunknown flag: --x"), ()),
])  # fmt: skip
def test_a_complaint_names_words_of_the_call(made: tuple[str, object, str], words: tuple[str, ...]) -> None:
    trace = trace_of(made)
    assert complaint_of(context_of(trace, 0, trace.steps[0].error_sites[0], actions_of(trace))) == words


# ------------------------------------------------------------------------------------- the environment's own words

BASH_EDIT = ({"function": {"name": "Bash"}}, {"function": {"name": "Edit"}})
OFFERED = [
    ("tool_not_found", "No such tool available: Foo", ToolCall("Foo", {}), "Reminder: Available tools are: `Bash`, `Edit`. Use one of these."),
    ("tool_not_found", "No such tool available: edt", ToolCall("edt", {}), "Use the tool `Edit`."),
    ("tool_not_found", "Model tried to call unavailable tool 'foo'. Available tools: bash, skill.", ToolCall("foo", {}), "Reminder: Available tools are: `bash`, `skill`. Use one of these."),
    ("tool_not_found", "Agent type 'reviewr' not found. Available agents: reviewer, general", ToolCall("Task", {"subagent_type": "reviewr"}), "Use the tool `reviewer`."),
    ("schema_validation", "InputValidationError: Read failed due to the following issue:\nThe required parameter `file_path` is missing", ToolCall("Read", {}), "Give `file_path`."),
    ("schema_validation", "failed to parse function arguments: missing field `cmd` at line 1", ToolCall("exec_command", {}), "Give `cmd`."),
    ("schema_validation", "The parameter `output_mode` must be one of `content`, `count`", ToolCall("Grep", {}), "Use `content`, `count`."),
    ("path_not_found", "File not found: /repo/a.py\n\nDid you mean one of these?\n/repo/b.py\n/repo/c.py", ToolCall("read", FILE), "Use /repo/b.py."),
    ("usage_error", "unknown command 'vew'. Did you mean 'view'?", ToolCall("Bash", {"command": "gh pr vew"}), "Use view."),
    ("usage_error", "no command 'vew' (did you mean view?)", ToolCall("Bash", {"command": "gh pr vew"}), "Use view."),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "call", "text"), OFFERED, ids=[one[3] for one in OFFERED])
def test_a_quoted_hint_repeats_what_the_message_offers(kind: str, message: str, call: ToolCall, text: str) -> None:
    used = (
        Action(ToolCall("Read", {"file_path": "/repo/b.py"}), ""),
        Action(ToolCall("Bash", {"command": "gh pr view"}), ""),
    )
    later = tuple(LaterCall(one, ok=True) for one in used)
    context = SiteContext(
        site(kind, message, call.name), call, available_tools=("Bash", "Edit"), answer=message, later=later
    )
    hint = write_hint(context, (from_quoted,))
    assert hint is not None
    assert (hint.text, hint.writer, hint.kind, hint.call_id) == (text, "quoted", kind, "call-0")


@pytest.mark.parametrize(("later", "ok"), [("gh pr view", False), ("gh pr view-all", True), ("", True)])
def test_a_guess_of_the_environment_that_nothing_proves_is_no_hint(later: str, ok: bool) -> None:
    message, call = "unknown command 'vew'. Did you mean 'view'?", ToolCall("Bash", {"command": "gh pr vew"})
    seen = (LaterCall(Action(ToolCall("Bash", {"command": later}), ""), ok),)
    context = SiteContext(site("usage_error", message, "Bash"), call, answer=message, later=seen)
    assert write_hint(context, (from_quoted,)) is None


def test_a_tool_that_was_missing_as_well_is_not_offered() -> None:
    trace = trace_of(("ask_user_all", {}, "Tool ask_user_all not found"), ("ask_user", {}, "Tool ask_user not found"))
    assert texts(trace) == []


def test_a_file_in_another_language_is_another_file() -> None:
    assert not is_other_path("docs/README.ko.md", "docs/README.md")
    assert is_other_path("docs/env.mjs", "docs/env.js")


@pytest.mark.parametrize("message", ["", "File does not exist.", "Did you mean to match some of these lines?", "error"])
@pytest.mark.parametrize("kind", sorted(kind for kind, blame in KINDS.items() if blame == "model"))
def test_where_nothing_right_is_known_there_is_no_default_hint(kind: str, message: str) -> None:
    assert write_hint(SiteContext(site(kind, message), ToolCall("Edit", FILE), answer=message)) is None


def test_a_recorded_tool_list_beats_the_names_that_were_called() -> None:
    (text,) = texts(trace_of(("Foo", {}, "No such tool available: Foo"), tools=BASH_EDIT))
    assert "`Bash`, `Edit`" in text


# ---------------------------------------------------------------------------------- no hint quotes the mistake


@pytest.mark.parametrize(("text", "quotes"), [
    ("Use lib/a.py.", False),
    ("Use lib/a.py, not src/a.py.", True),
    ("Look at src/a.py", True),
    ("Read the file first.", False),
    ("Use Read.", False),
])  # fmt: skip
def test_wrong_words_are_names_of_the_failed_call_that_the_working_one_lacks(text: str, quotes: bool) -> None:
    failed = ToolCall("Read", {"file_path": "src/a.py", "reason": "read the file first"})
    assert quotes_wrong(text.rstrip("."), failed, ToolCall("Read", {"file_path": "lib/a.py"})) == quotes


def test_a_hint_that_quotes_the_mistake_is_dropped_whoever_wrote_it() -> None:
    trace = trace_of(wrong_file("/repo/src/core/parser.py"), ("Read", {"file_path": "/repo/lib/parser.py"}, "x"))

    def mine(context: SiteContext) -> Hint | None:
        return Hint("It is not at /repo/src/core/parser.py", "mine", "r", 1, context.site.kind, context.site.call_id)

    assert texts(trace, mine) == []
    assert texts(trace, mine, from_hindsight) == ["Use /repo/lib/parser.py."]


def _written(paths: list[str]) -> Iterator[tuple[SiteContext, Hint]]:
    """Yield every hint of every writer at every site of some sessions."""
    for session in Reading(paths, ReadOptions()):
        actions = actions_of(session.trace, session.flags)
        trace = find_errors(session, actions)
        for position, step in enumerate(trace.steps):
            for one in step.error_sites:
                context = context_of(trace, position, one, actions)
                found = (write_hint(context, (writer,)) for writer in hints.WRITERS.values())
                yield from ((context, hint) for hint in found if hint)


def _check_hints(paths: list[str]) -> None:
    written = list(_written(paths))
    assert {hint.writer for _, hint in written} >= {"hindsight", "quoted", "environment"}
    for context, hint in written:
        assert not quotes_wrong(hint.text, context.call, worked_call(context)), hint.text


def test_no_hint_of_any_writer_quotes_the_mistake_in_the_fixtures_of_all_harnesses() -> None:
    _check_hints([str(Path(__file__).parent.parent / "fixtures/harnesses")])


def test_no_hint_of_any_writer_quotes_the_mistake_in_real_sessions(samples: Path) -> None:
    _check_hints([str(samples)])


# ------------------------------------------------------------------------------------ environment, user, switches


def test_the_environment_is_quoted_without_the_lines_that_repeat_the_mistake() -> None:
    trace = trace_of(
        shell(
            "python -c 'import gen; names[1]'",
            'Exit code 1\nTraceback (most recent call last):\n  File "<string>", line 7\nNameError: it is not defined',
        )
    )
    assert texts(trace, from_environment) == ["The environment answers:\nNameError: it is not defined"]
    assert texts(trace) == []  # opt-in: true, but often of little help


@pytest.mark.parametrize("kind", ["style_violation", "effort", "repeated_failure", "tone"])
def test_the_environment_says_nothing_about_style_or_repetition(kind: str) -> None:
    assert from_environment(SiteContext(site(kind, "Error: it went wrong again"))) is None


@pytest.mark.parametrize("kind", ["json_decode", "type_error", "runtime_error", "some_new_exception", "import_crash"])
def test_a_kind_about_tools_may_use_the_environments_words(kind: str) -> None:
    assert from_environment(SiteContext(site(kind, "Error: it went wrong again"))) is not None


REJECTED = (
    "Edit",
    FILE,
    "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to proceed, the user said:\nwhy not use enable?",
)


def test_the_users_words_are_opt_in() -> None:
    assert texts(trace_of(REJECTED)) == []
    assert texts(trace_of(REJECTED), user_feedback=True) == ["The user says: why not use enable?"]


def test_the_users_next_message_counts_as_their_words() -> None:
    silent = ("Edit", FILE, "The user doesn't want to take this action right now. STOP what you are doing")
    trace = trace_of(
        silent, ("user", None, "[Request interrupted by user for tool use]"), ("user", None, "use the other file"), READ
    )
    assert texts(trace, user_feedback=True) == ["The user says: use the other file"]
    assert from_user(SiteContext(site("timeout"), user_words="hello")) is None


NO_HINTS = [
    "i'll take it from here.", "try again", "Try again.", "huh, that's what my expectation says. Try again.", "too slow.",
    "do you have context7?", "ok, continue", "stop", "never mind", "please wait, i'm looking", "No",
]  # fmt: skip
INSTRUCTIONS = ["use pnpm here", "no, use the other file", "why not use enable?", "this is wrong, use ruff instead", "stop. The tests should come first."]  # fmt: skip


@pytest.mark.parametrize("words", NO_HINTS + INSTRUCTIONS)
def test_a_persons_words_are_a_hint_only_if_they_ask_for_something(words: str) -> None:
    rejected = (
        "Edit",
        FILE,
        f"The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n{words}",
    )
    expected = [f"The user says: {words}"] if words in INSTRUCTIONS else []
    assert texts(trace_of(rejected), user_feedback=True) == expected


def test_words_of_tests_have_a_separate_switch() -> None:
    trace = trace_of(shell("pytest", "Exit code 1\nFAILED tests/test_a.py::test_b - assert 1 == 2"))
    assert texts(trace) == []
    (text,) = texts(trace, outcome=True)
    assert "FAILED tests/test_a.py::test_b" in text


def test_failures_of_the_environment_have_a_separate_switch() -> None:
    trace = trace_of(shell("make install", "Exit code 1\ncp: no right: Permission denied"))
    assert texts(trace) == []
    assert len(texts(trace, environment=True)) == 1


def test_the_order_of_writers_is_the_callers() -> None:
    message = "No such tool available: ReadFile"
    trace = trace_of(("ReadFile", FILE, message), READ, tools=({"function": {"name": "Read"}},))
    assert [step.hints[0].writer for step in write_hints(trace).steps if step.hints] == ["hindsight"]
    chosen = hints.writers_named("quoted, hindsight")
    assert [step.hints[0].writer for step in write_hints(trace, chosen).steps if step.hints] == ["quoted"]


def test_an_unknown_writer_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"No hint writer is named foo. Choose from: hindsight, quoted"):
        hints.writers_named("foo,quoted")
    with pytest.raises(UsageError, match="give --judge URL#MODEL"):
        hints.writers_named("hindsight,judge")


def test_coverage_counts_sites_with_and_without_a_hint() -> None:
    trace = write_hints(trace_of(NOT_READ, READ, EDITED, REJECTED))
    counted = hints.hint_coverage([trace, trace_of(NOT_READ)])
    assert counted["num_sites"] == 3
    assert counted["sites_by_blame"] == {"model": 2, "user": 1}
    assert (counted["num_model_sites"], counted["num_model_sites_hinted"]) == (2, 1)
    assert counted["hints_by_writer"] == {"hindsight": 1}
    assert counted["unhinted_by_kind"] == {"stale_read": 1}


WRITTEN = {
    "hindsight": PROVEN[0],
    "quoted": ([("Foo", {"path": "a"}, "No such tool available: Foo. Available tools are: Read")], "Reminder: Available tools are: `Read`. Use one of these."),
    "environment": ([shell("python -c 'names[1]'", "Exit code 1\nNameError: it is not defined")], "The environment answers:\nNameError: it is not defined"),
    "user": ([REJECTED], "The user says: why not use enable?"),
}  # fmt: skip


def test_every_writer_has_a_session_for_which_it_writes_a_hint_under_its_name() -> None:
    assert {*WRITTEN} == {*hints.WRITERS}, "Add a session to WRITTEN."
    written = {}
    for name, (made, _) in WRITTEN.items():
        trace = write_hints(trace_of(*made), (hints.WRITERS[name],), outcome=True, user_feedback=True, environment=True)
        written[name] = [(hint.writer, hint.text) for step in trace.steps for hint in step.hints][:1]
    assert written == {name: [(name, WRITTEN[name][1])] for name in hints.WRITERS}, (
        "A hint that is missing may hold a word of the failed call: without a working call in the session, every name, "
        "path, option and whole value of the failed call is forbidden (quotes_wrong of errors/corrections.py)."
    )


# --------------------------------------------------------------------------------------------- controls, properties


def test_a_control_hint_has_the_shape_and_not_the_content() -> None:
    hint = Hint("Reminder: First read /repo/a.py and everything beside it.", "hindsight", "read", 1, "stale_read", "c")
    control = hints.control_hint(hint, random.Random(7))
    assert control == hints.control_hint(hint, random.Random(7))
    assert (control.writer, control.kind, control.call_id) == ("control", hint.kind, hint.call_id)
    assert 0.6 * len(hint.text) <= len(control.text) <= len(hint.text)
    assert control.text.startswith("Reminder: ")
    assert "/repo" not in control.text


RESULTS = st.one_of(st.sampled_from([NOT_READ[2], EDITED[2], REJECTED[2], "Exit code 1\nboom", "Exit code 127\nsh: x: not found", "Found 2 matches of the string to replace", "No such tool available: x"]), st.text(max_size=80))  # fmt: skip
CALLS = st.tuples(
    st.sampled_from(["Edit", "Read", "Bash", "Task", "x", ""]),
    st.one_of(st.none(), st.text(max_size=20), st.dictionaries(st.sampled_from(["file_path", "command", "old_string"]), st.one_of(st.text(max_size=30), st.integers(), st.none()), max_size=3)),
    RESULTS,
)  # fmt: skip


@STABLE
@given(st.lists(CALLS, max_size=8), st.permutations(list(hints.WRITERS.values())), st.booleans())
def test_each_hint_answers_a_site_of_its_own_step(
    made: list[tuple[str, object, str]], order: list[hints.HintWriter], on: bool
) -> None:
    trace = trace_of(*made)
    written = write_hints(trace, order, outcome=on, user_feedback=on, environment=on)
    assert write_hints(written, order, outcome=on, user_feedback=on, environment=on) == written
    for step in written.steps:
        known = {(site.kind, site.call_id) for site in step.error_sites}
        for hint in step.hints:
            assert (hint.kind, hint.call_id) in known
            assert 0 < len(hint.text) <= hints.MAX_HINT_CHARS
            assert hint.writer in hints.WRITERS
            assert hint.rule
            assert hint.version >= 1


@STABLE
@given(st.sampled_from(sorted(KINDS)), st.text(max_size=300))
def test_no_message_breaks_a_writer(kind: str, message: str) -> None:
    for writer in hints.WRITERS.values():
        hint = write_hint(SiteContext(site(kind, message)), (writer,))
        assert hint is None or len(hint.text) <= hints.MAX_HINT_CHARS


def test_code_that_decides_hints_changes_with_a_look_at_the_version() -> None:
    now, before = digests.digests(), digests.known()
    changed = sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    assert not changed, (
        f"{', '.join(changed)} changed. If some site gets another hint, a first one or none (as after a new finder, writer "
        "or sentence), raise VERSION of hints/writers.py by one. After a new name, a faster search or other words of the "
        "reference, do not. Then write the new digests: python -m tests.hints.digests"
    )


@pytest.mark.parametrize(("before", "after", "is_same"), [
    ("x = 1", "x = 2", False),
    ("x = a <= b", "x = a < b", False),
    ("x = a - b", "x = b - a", False),
    ("FINDERS = (a, b)", "FINDERS = (b, a)", False),
    ("FINDERS = (a,)", "FINDERS = (a, b)", False),
    ("x = None", "x = False", False),
    ("def f(a: int) -> str:\n    return a", "def f(a):\n    'Say it.'\n    return (a)  # again", True),
])  # fmt: skip
def test_a_digest_sees_every_change_of_behaviour(before: str, after: str, is_same: bool) -> None:
    assert (digests.digest(ast.parse(before)) == digests.digest(ast.parse(after))) == is_same
