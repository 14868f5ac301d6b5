"""Hints: each writer says what it should, at the site it should, and stays silent elsewhere."""

# ruff: noqa: E501  # a case is one line

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_hub.errors.find import find_errors
from composer_hub.errors.vocabulary import KINDS
from composer_hub.exits import UsageError
from composer_hub.hints import writers as hints
from composer_hub.hints.writers import (
    LIVE_WRITERS,
    SiteContext,
    from_environment,
    from_hindsight,
    from_template,
    from_user,
    write_hint,
    write_hints,
)
from composer_hub.records import ErrorSite, Message, Step, ToolCall, Trace
from composer_hub.session import Session

STABLE = settings(max_examples=100, deadline=None, derandomize=True)


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
SHELL = {"command": "gsed -i s/a/b/ a.py"}

# As Claude Code words them: a line an issue.
TWO_ISSUES = (
    "InputValidationError: Grep failed due to the following issues:\n"
    "The parameter `output_mode` must be one of `content`, `files_with_matches`, `count`\n"
    "The parameter `head_limit` type is expected as `number` but provided as `string`"
)
FIVE_ISSUES = (
    "InputValidationError: Read failed due to the following issues:\n"
    "The required parameter `a` is missing\nThe required parameter `b` is missing\n"
    "An unexpected parameter `c` was provided\nAn unexpected parameter `d` was provided\n"
    "The parameter `e` type is expected as `number` but provided as `string`"
)

# (kind, message, call, what the hint must hold)
SLOTS = [
    ("tool_not_found", "No such tool available: Foo", ToolCall("Foo", {}), ["Available tools are: `Bash`, `Edit`", "Use one of these"]),
    ("tool_not_found", "Agent type 'x' not found. Available agents: general, Explore", ToolCall("Task", {}), ["Available agents are: `general`, `Explore`. Use one"]),
    ("tool_not_found", "Agent type 'reviewer' not found. Available agents: " + ", ".join(f"team:helper-{n}" for n in range(60)) + ", team:reviewer, general", ToolCall("Task", {}), ["There is no agent `reviewer`; the nearest is `team:reviewer`."]),
    ("tool_not_found", "Unknown skill: commit", ToolCall("Skill", {"skill": "commit"}), ["There is no skill `commit`; use only the skills that are offered."]),
    ("tool_not_found", "Model tried to call unavailable tool 'foo'. Available tools: bash, skill.", ToolCall("foo", {}), ["Available tools are: `bash`, `skill`. Use one"]),
    ("tool_not_found", "No such tool available: edt", ToolCall("edt", {}), ["There is no tool `edt`; the nearest is `Edit`."]),
    ("schema_validation", "The bash tool was called with invalid arguments: SchemaError(Missing key\n  at [\"command\"]).", ToolCall("bash", {}), ["`command` was missing."]),
    ("json_decode", "failed to parse function arguments: EOF", ToolCall("shell", "{"), ["valid JSON", "trailing comma"]),
    ("schema_validation", "InputValidationError: Read failed due to the following issue:\nThe required parameter `file_path` is missing", ToolCall("Read", {}), ["`file_path` was missing"]),
    ("schema_validation", "An unexpected parameter `limits` was provided", ToolCall("Read", {}), ["`limits` is not one that it knows"]),
    ("schema_validation", "The parameter `limit` type is expected as `number` but provided as `string`", ToolCall("Read", {}), ["`limit` must be of type number"]),
    ("schema_validation", TWO_ISSUES, ToolCall("Grep", {}), ["arguments: `output_mode` must be one of `content`, `files_with_matches`, `count`; `head_limit` must be of type number. "]),
    ("schema_validation", FIVE_ISSUES, ToolCall("Read", {}), ["`a` was missing; `b` was missing; `c` is not one that it knows; 2 more were wrong."]),
    ("type_error", "Missing required parameter `path`", ToolCall("Read", {}), ["does not take these arguments", "`path`"]),
    ("format_error", "Please always provide EXACTLY ONE action", None, ["exactly one action"]),
    ("edit_no_match", "String to replace not found in file.", ToolCall("Edit", FILE), ["match /repo/a.py exactly"]),
    ("edit_ambiguous", "Found 3 matches of the string to replace", ToolCall("Edit", FILE), ["occurs 3 times in /repo/a.py"]),
    ("edit_noop", "No changes to make", ToolCall("Edit", FILE), ["are the same"]),
    ("edit_syntax_rejected", "Your proposed edit has introduced new syntax error(s).\n/workspace/src/App.tsx:22\n", None, ["/workspace/src/App.tsx near line 22"]),
    ("stale_read", "File has not been read yet.", ToolCall("Edit", FILE), ["Read /repo/a.py before editing it"]),
    ("path_not_found", "File does not exist. Note: your current working directory is /repo/x.", ToolCall("Read", {"file_path": "src/a.py"}), ["src/a.py does not exist", "(the working directory is /repo/x).", "search for a.py"]),
    ("path_not_found", "bash: ./x: No such file or directory\n[Current working directory: /workspace]", ToolCall("execute_bash", {"command": "./x"}), ["./x does not exist (the working directory is /workspace)."]),
    ("path_not_found", "File does not exist. Did you mean src/b.py?", ToolCall("Read", FILE), ["there is src/b.py"]),
    ("path_not_found", "File not found: /repo/a.py\n\nDid you mean one of these?\n/repo/b.py\n/repo/c.py", ToolCall("read", FILE), ["there is /repo/b.py."]),
    ("path_not_found", "zsh:1: no matches found: src/[id].ts", ToolCall("Bash", {"command": "cat src/[id].ts"}), ["takes src/[id].ts as a pattern"]),
    ("path_not_found", "zsh:1: no such file or directory: ./bin/tsc", ToolCall("Bash", {"command": "./bin/tsc -p ."}), ["no program at ./bin/tsc"]),
    ("path_not_found", "cat: docs/x.md: No such file or directory", ToolCall("Bash", {"command": "cat docs/x.md"}), ["docs/x.md does not exist"]),
    ("path_not_found", "cat: a.py: No such file or directory", ToolCall("Bash", {"command": "cd /repo/src && cat a.py"}), ["a.py does not exist in /repo/src, which the command enters first."]),
    ("is_directory", "EISDIR", ToolCall("Read", {"file_path": "/repo"}), ["/repo is a directory"]),
    ("output_limit", "File content (9 tokens) exceeds maximum", ToolCall("Read", FILE), ["of /repo/a.py is too large", "offset and limit"]),
    ("command_not_found", "zsh: command not found: gsed", ToolCall("Bash", SHELL), ["`gsed` is not on the PATH", "command -v gsed"]),
    ("path_not_found", "(eval):1: no such file or directory: /tmp/t/.env", ToolCall("Bash", {"command": "echo A=1 > /tmp/t/.env"}), ["/tmp/t does not exist", "mkdir -p"]),
    ("path_not_found", "(eval):cd:1: no such file or directory: /tmp/x", ToolCall("Bash", {"command": "cd /tmp/x && ls"}), ["The folder /tmp/x does not exist."]),
    ("command_not_found", "zsh:1: command not found: sync.mode", ToolCall("Bash", {"command": 'sed -i "s/a/`sync.mode` is on/" a.md'}), ["between backticks, such as `sync.mode`"]),
    ("command_not_found", "(eval):4: command not found: gh\n(eval):4: command not found: base64", ToolCall("Bash", {"command": "gh api x | base64 -d"}), ["Even `base64` is not found", "PATH"]),
    ("command_not_found", "zsh: command not found: python", ToolCall("Bash", {"command": "python -V"}), ["`python3` is (`command -v python3`)"]),
    ("path_not_found", "sed: can't read lib/a.ts: No such file or directory", ToolCall("Bash", {"command": "sed -n 1,9p lib/a.ts"}), ["lib/a.ts does not exist"]),
    ("schema_validation", 'MCP error -32602: Invalid arguments for tool find: [\n  {\n    "expected": "string",\n    "code": "invalid_type",\n    "path": [\n      "query"\n    ],\n    "message": "Invalid input: expected string, received undefined"\n  }\n]', ToolCall("mcp__x__find", {"name": "a"}), ["`query` was missing"]),
    ("command_not_found", "exit code 127", ToolCall("Bash", {"command": "/r/bin/entire list"}), ["no program at /r/bin/entire"]),
    ("repeated_call", "Bash with the same arguments, 3 times in a row:\nx", None, ["3 times", "Change something"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "message", "call", "held"), SLOTS, ids=[f"{i}-{one[0]}" for i, one in enumerate(SLOTS)]
)
def test_a_template_fills_its_slots(kind: str, message: str, call: ToolCall | None, held: list[str]) -> None:
    context = SiteContext(
        site(kind, message, call.name if call else ""), call, available_tools=("Bash", "Edit"), answer=message
    )
    hint = from_template(context)
    assert hint is not None
    assert hint.text.startswith("Reminder: ")
    assert [part for part in held if part not in hint.text] == []
    assert "\n" not in hint.text
    assert (hint.writer, hint.kind, hint.call_id) == ("template", kind, "call-0")


@pytest.mark.parametrize(("command", "output"), [
    ("cd api && make > /tmp/o.txt; tail /tmp/o.txt", "make: done\ntail: /tmp/o.txt: No such file or directory"),
    ("cd api && cat > /tmp/c.py <<'E'\nx\nE\npython3 /tmp/c.py", "python3: can't open file '/tmp/c.py': [Errno 2] No such file or directory"),
])  # fmt: skip
def test_a_file_that_an_earlier_part_of_the_command_should_have_written_gives_no_hint(
    command: str, output: str
) -> None:
    call = ToolCall("Bash", {"command": command})
    assert write_hint(SiteContext(site("path_not_found", output, "Bash"), call, answer=output)) is None


def test_a_hint_names_no_folder_that_the_failed_part_of_a_command_may_not_be_in() -> None:
    output = "grep: a.xml: No such file or directory"
    for command, held in (("cd api && grep x a.xml", "in api"), ("cd api && ls; grep x a.xml", "a.xml does not exist")):
        hint = write_hint(
            SiteContext(site("path_not_found", output, "Bash"), ToolCall("Bash", {"command": command}), answer=output)
        )
        assert hint is not None
        assert held in hint.text
        assert ("in api" in hint.text) == (held == "in api")


PROVEN_BY_THE_KIND = {
    "tool_not_found", "json_decode", "format_error", "edit_no_match", "edit_ambiguous", "edit_noop", "stale_read",
    "edit_syntax_rejected", "is_directory", "output_limit", "repeated_call",
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(kind for kind, blame in KINDS.items() if blame == "model"))
def test_a_template_says_nothing_that_neither_the_kind_nor_the_message_proves(kind: str) -> None:
    hint = from_template(SiteContext(site(kind)))
    assert bool(hint) == (kind in PROVEN_BY_THE_KIND)
    if hint:
        assert 30 < len(hint.text) < 400
        assert "None" not in hint.text


QUOTED = [
    ("vcs_error", "fatal: '../x' is outside repository at '/w'", "is outside repository"),
    ("runtime_exception", 'Traceback (most recent call last):\n  File "b.py", line 7, in f\nKeyError: 1', "KeyError: 1"),
    ("schema_validation", "Argument Validation Error", "Argument Validation Error"),
    ("usage_error", "xargs: command line cannot be assembled, too long", "cannot be assembled"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "held"), QUOTED)
def test_where_no_template_speaks_a_live_hint_quotes_the_environment(kind: str, message: str, held: str) -> None:
    context = SiteContext(site(kind, message), answer=message)
    hint = write_hint(context, LIVE_WRITERS)
    assert hint is not None
    assert (hint.writer, held in hint.text) == ("environment", True)
    assert write_hint(context) is None  # opt-in: true, but often of little help


def test_no_hint_quotes_words_that_do_not_complain_or_that_another_site_has() -> None:
    long = "Building the project\n" * 30
    for kind, words in (
        ("runtime_exception", long),
        ("repeated_failure", "KeyError: 1"),
        ("timeout", "exit code 124"),
    ):
        assert write_hint(SiteContext(site(kind, words), answer=words), LIVE_WRITERS) is None


def test_a_schema_names_its_fields() -> None:
    schema = {"properties": {"file_path": {}, "limit": {}}, "required": ["file_path"]}
    hint = from_template(
        SiteContext(site("schema_validation", "missing `file_path`"), ToolCall("Read", {}), tool_schema=schema)
    )
    assert hint is not None
    assert hint.text.endswith("It takes: file_path (required), limit.")


def test_a_user_may_register_a_template_for_a_kind_of_their_own() -> None:
    hints.register("style_wordy", lambda context: f"Say it shorter than {context.site.message}.")
    try:
        hint = write_hint(SiteContext(site("style_wordy", "that")))
        assert hint is not None
        assert hint.text == "Reminder: Say it shorter than that."
    finally:
        del hints.TEMPLATES["style_wordy"]


def test_an_older_name_replaces_the_template_of_its_kind() -> None:
    kept = hints.TEMPLATES["schema_validation"]
    hints.register("type_error", lambda context: "mine")
    try:
        hint = from_template(SiteContext(site("schema_validation")))
        assert hint is not None
        assert hint.text == "Reminder: mine"
    finally:
        hints.TEMPLATES["schema_validation"] = kept


# -------------------------------------------------------------------------------------------------------- hindsight

NOT_READ = ("Edit", {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}, "File has not been read yet.")
EDITED = ("Edit", {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}, "The file has been updated.")
READ = ("Read", {"file_path": "/repo/a.py"}, "     1\tx")


def test_hindsight_tells_that_reading_came_first() -> None:
    assert texts(trace_of(NOT_READ, READ, EDITED), from_hindsight) == ["First read /repo/a.py; then `Edit` works."]


TWICE = (
    "Edit",
    {"file_path": "/repo/a.py", "old_string": "a", "new_string": "y"},
    "Found 2 matches of the string to replace, but",
)


def test_hindsight_names_the_flag_that_was_missing() -> None:
    worked = ("Edit", {"file_path": "/repo/a.py", "old_string": "a", "new_string": "y", "replace_all": True}, "ok")
    assert texts(trace_of(TWICE, worked), from_hindsight) == [
        "Every such place in /repo/a.py was meant: `Edit` works with replace_all = true."
    ]


def test_hindsight_names_the_part_to_ask_for() -> None:
    failed = (
        "Read",
        {"file_path": "/repo/a.py"},
        "File content (31337 tokens) exceeds maximum allowed tokens (25000).",
    )
    worked = ("Read", {"file_path": "/repo/a.py", "offset": 1, "limit": 500}, "x")
    assert texts(trace_of(failed, worked), from_hindsight) == [
        "On /repo/a.py `Read` works with offset = 1 and limit = 500."
    ]


def test_a_session_without_a_working_directory_in_the_answer_gets_no_claim() -> None:
    (text,) = texts(
        trace_of(("Bash", {"command": "cd src && cat a.py"}, "Exit code 1\ncat: a.py: No such file or directory"))
    )
    assert "working directory" not in text


def test_a_tool_that_only_a_later_call_shows_is_not_named() -> None:
    tools = ({"name": "Read"}, {"name": "Edit"})
    trace = trace_of(READ, ("Edt", {}, "No such tool available: Edt"), EDITED, tools=tools)
    recorded, seen = trace, replace(trace, tools_source="seen")
    assert ["nearest is `Edit`" in text for one in (recorded, seen) for text in texts(one, from_template)] == [
        True,
        False,
    ]


def test_the_nearest_skill_comes_from_the_list_that_the_model_was_shown() -> None:
    shown = "The following skills are available for use with the Skill tool:\n\n- git:commit: Commit the work\n- review: Read a diff"
    (text,) = texts(trace_of(("user", None, shown), ("Skill", {"skill": "commit"}, "Unknown skill: commit")))
    assert text == "Reminder: There is no skill `commit`; the nearest is `git:commit`."


def test_hindsight_names_the_path_that_was_there() -> None:
    failed = ("Read", {"file_path": "/repo/src/a.py"}, "File does not exist.")
    assert texts(trace_of(failed, READ), from_hindsight) == ["The right path is /repo/a.py (not /repo/src/a.py)."]


def test_hindsight_names_the_command_that_worked_on_the_same_target() -> None:
    failed = (
        "Bash",
        {"command": "cp src/dark.json ~/themes/"},
        "Exit code 1\ncp: src/dark.json: No such file or directory",
    )
    other = ("Bash", {"command": "ls src"}, "theme")
    worked = ("Bash", {"command": "cp src/theme/dark.json ~/themes/"}, "")
    (text,) = texts(trace_of(failed, other, worked), from_hindsight)
    assert text == "This command works instead: cp src/theme/dark.json ~/themes/"


def test_hindsight_finds_the_program_that_is_installed() -> None:
    failed = ("Bash", {"command": "python tool.py"}, "Exit code 127\nzsh: command not found: python")
    worked = ("Bash", {"command": "python3 tool.py"}, "done")
    assert texts(trace_of(failed, worked), from_hindsight) == ["This command works instead: python3 tool.py"]


@pytest.mark.parametrize(("later", "said"), [
    ("cd /repo && psql x < db/new.sql", ["This command works from /repo: begin it with `cd /repo &&`."]),
    ("cd /repo && git add db/new.sql", ["From /repo, db/new.sql exists: begin with `cd /repo &&`."]),
    ("cd /repo && cp old.sql db/new.sql", []),
])  # fmt: skip
def test_hindsight_says_of_a_folder_what_the_later_command_proves(later: str, said: list[str]) -> None:
    missing = "Exit code 1\n/bin/bash: line 1: db/new.sql: No such file or directory"
    failed = ("Bash", {"command": "psql x < db/new.sql"}, missing)
    assert texts(trace_of(failed, ("Bash", {"command": later}, "ok")), from_hindsight) == said


def test_hindsight_finds_the_tool_that_is_there() -> None:
    failed = ("ReadFile", {"path": "/repo/a.py"}, "No such tool available: ReadFile")
    assert texts(trace_of(failed, READ), from_hindsight) == [
        "There is no `ReadFile` here; `Read` does this: /repo/a.py"
    ]


def test_a_read_is_no_substitute_for_an_edit_with_an_unknown_tool() -> None:
    edit = {"file_path": "/repo/a.py", "old_string": "x", "new_string": "y"}
    trace = trace_of(
        ("replace", edit, 'Error: Tool "replace" not found.'), ("read_file", {"file_path": "/repo/a.py"}, "x")
    )
    assert [hint.writer for step in write_hints(trace).steps for hint in step.hints] in ([], ["template"])


GIT_FAILED = ("Bash", {"command": "git push origin topic"}, "Exit code 1\nerror: src refspec topic does not match any")
SILENT = {
    "another edit of the file": [TWICE, ("Edit", {"file_path": "/repo/a.py", "old_string": "def f():\n    a", "new_string": "y"}, "ok")],
    "an edit with another old text": [("Edit", {"file_path": "/repo/a.py", "old_string": "a", "new_string": "y"}, "String to replace not found in file."), READ, ("Edit", {"file_path": "/repo/a.py", "old_string": "b", "new_string": "y"}, "ok")],
    "the same path in another command": [("Bash", {"command": "cat docs/a.md"}, "Exit code 1\ncat: docs/a.md: No such file or directory"), ("Bash", {"command": "cat -n docs/a.md"}, "x")],
    "a path that was made in between": [("Bash", {"command": "cat docs/a.md"}, "Exit code 1\ncat: docs/a.md: No such file or directory"), ("Bash", {"command": "cp x src/a.md"}, ""), ("Bash", {"command": "cat src/a.md"}, "x")],
    "a file of the same common name elsewhere": [("Read", {"file_path": "/repo/src/index.ts"}, "File does not exist."), ("Read", {"file_path": "/repo/test/web/index.ts"}, "x")],
    "a command that hides its exit code": [("Bash", {"command": "gh pr vew 12"}, 'Exit code 1\nunknown command "vew"'), ("Bash", {"command": "gh pr view 12 || true"}, "x")],
    "a command that removes something": [GIT_FAILED, ("Bash", {"command": "git push --force origin topic"}, "ok")],
    "a git command that another one made possible": [GIT_FAILED, ("Bash", {"command": "git checkout -b topic"}, "ok"), ("Bash", {"command": "git push -u origin topic"}, "ok")],
    "the same call that works again": [("Bash", {"command": "git push"}, "Exit code 1\nerror: failed"), ("Bash", {"command": "git push"}, "ok")],
    "another target": [NOT_READ, ("Edit", {"file_path": "/repo/b.py", "old_string": "x"}, "ok")],
    "an unrelated command": [("Bash", {"command": "cat nope.txt"}, "Exit code 1\ncat: nope.txt: No such file or directory"), ("Bash", {"command": "cat other.txt"}, "x")],
    "a success after more than eight calls": [NOT_READ, *[("Bash", {"command": f"ls {i}"}, str(i)) for i in range(8)], READ, EDITED],
    "a file of a sibling folder": [("Bash", {"command": "sed -n 1,9p agents/pi/net/handlers_test.go"}, "Exit code 1\nsed: agents/pi/net/handlers_test.go: No such file or directory"), ("Bash", {"command": "sed -n 1,9p agents/kiro/net/handlers_test.go"}, "x")],
    "another test": [("Bash", {"command": "go test -run TestA -x ./e2e/..."}, "Exit code 1\npattern ./e2e/...: directory prefix e2e does not contain main module"), ("Bash", {"command": "go test -run TestB -x ./e2e/..."}, "ok")],
    "a later failure": [NOT_READ, NOT_READ],
    "a site that is not the model's fault": [("Edit", {"file_path": "/repo/a.py"}, "The user doesn't want to proceed with this tool use."), EDITED],
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


# ---------------------------------------------------------------------------------------- environment, user, switches


def test_the_environments_words_are_for_tools_and_programs_and_not_for_style() -> None:
    said = from_environment(SiteContext(site("some_new_exception", "Error: boom\nagain")))
    assert said is not None
    assert said.text.endswith("Error: boom\nagain")
    assert [
        from_environment(SiteContext(site(kind, "Error: boom")))
        for kind in ("style_violation", "verbose_output", "effort")
    ] == [None] * 3
    assert from_environment(SiteContext(site("timeout"))) is None


@pytest.mark.parametrize(
    "kind",
    [
        "tool_not_found",
        "json_decode",
        "type_error",
        "runtime_error",
        "repeated_failure",
        "format_error",
        "import_crash",
        "exit_code_9",
    ],
)
def test_a_runtime_kind_may_use_raw_words(kind: str) -> None:
    assert hints.is_tool_runtime_kind(kind)


@pytest.mark.parametrize(
    "kind", ["style_violation", "communication", "effort_error", "tone", "formatting", "unknown", ""]
)
def test_a_style_kind_is_left_to_the_judge(kind: str) -> None:
    assert not hints.is_tool_runtime_kind(kind)


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
    trace = trace_of(("Bash", {"command": "pytest"}, "Exit code 1\nFAILED tests/test_a.py::test_b"))
    assert texts(trace) == []
    (text,) = texts(trace, outcome=True)
    assert "FAILED tests/test_a.py::test_b" in text


def test_failures_of_the_environment_have_a_separate_switch() -> None:
    trace = trace_of(("Bash", {"command": "touch /x"}, "Exit code 1\ntouch: /x: Permission denied"))
    assert texts(trace) == []
    assert len(texts(trace, environment=True)) == 1


def test_the_order_of_writers_is_the_callers() -> None:
    trace = trace_of(NOT_READ, READ, EDITED)
    assert [step.hints[0].writer for step in write_hints(trace).steps if step.hints] == ["hindsight"]
    chosen = hints.writers_named("template, hindsight")
    assert [step.hints[0].writer for step in write_hints(trace, chosen).steps if step.hints] == ["template"]


def test_an_unknown_writer_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"No hint writer is named foo. Choose from: hindsight, template"):
        hints.writers_named("foo,template")


def test_a_recorded_tool_list_beats_the_names_that_were_called() -> None:
    tools = ({"type": "function", "function": {"name": "Bash", "parameters": {}}}, {"name": "Edit"})
    (text,) = texts(trace_of(("Foo", {}, "No such tool available: Foo"), tools=tools))
    assert "`Bash`, `Edit`" in text


def test_coverage_counts_sites_with_and_without_a_hint() -> None:
    trace = write_hints(trace_of(NOT_READ, READ, EDITED, REJECTED))
    counted = hints.hint_coverage([trace, trace_of(NOT_READ)])
    assert counted["num_sites"] == 3
    assert counted["sites_by_blame"] == {"model": 2, "user": 1}
    assert (counted["num_model_sites"], counted["num_model_sites_hinted"]) == (2, 1)
    assert counted["hints_by_writer"] == {"hindsight": 1}
    assert counted["unhinted_by_kind"] == {"stale_read": 1}


# --------------------------------------------------------------------------------------------- controls, properties


def test_a_control_hint_has_the_shape_and_not_the_content() -> None:
    (step, *_) = write_hints(trace_of(NOT_READ)).steps
    hint = step.hints[0]
    control = hints.control_hint(hint, random.Random(7))
    assert control == hints.control_hint(hint, random.Random(7))
    assert (control.writer, control.kind, control.call_id) == ("control", hint.kind, hint.call_id)
    assert 0.8 * len(hint.text) <= len(control.text) <= len(hint.text)
    assert "before editing" not in control.text
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
def test_no_message_breaks_a_template(kind: str, message: str) -> None:
    hint = from_template(SiteContext(site(kind, message)))
    assert hint is None or len(hint.text) <= hints.MAX_HINT_CHARS
