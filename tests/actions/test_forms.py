"""Actions are compared by what they do: equal at a level means equal at every coarser one, and never by accident."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.context import contexts, whole_file
from composer_hub.actions.forms import LEVELS, ActionContext, NormalForm, normalize, same
from composer_hub.records import Message, ToolCall, Trace
from tests.quick import cases

stable = cases(120)

FILE = "def f():\n    return 1\n\ndef g():\n    return 1\n"
REPO = ActionContext(cwd="/repo", shell_cwd="/repo", files={"a.py": FILE})
WINDOWS = ActionContext(cwd="C:\\repo", shell_cwd="C:\\repo")


def act(name: str, arguments: Any, context: ActionContext = REPO) -> NormalForm:
    return normalize(Message("assistant", "", (ToolCall(name, arguments),)), context)


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n \n*** End Patch"

SAME = [
    ("Bash", {"command": "ls -la"}, "Bash", {"command": "ls -a -l ./", "description": "look"}),
    ("Bash", {"command": "ls"}, "execute_bash", {"command": "ls", "security_risk": "LOW"}),
    ("Bash", {"command": "ls", "timeout": 5000}, "bash", {"command": "ls"}),
    ("Bash", {"command": "ls"}, "exec_command", {"cmd": "ls", "workdir": "/repo", "yield_time_ms": 1000}),
    ("exec", {"input": "text((await tools.exec_command({cmd: 'ls src'})).output)"}, "Bash", {"command": "ls src"}),
    ("shell", {"command": ["bash", "-lc", "ls  src"]}, "shell", {"command": ["ls", "./src"]}),
    ("shell_command", {"command": "make", "workdir": "pkg"}, "shell_command", {"command": "cd pkg && make"}),
    ("Bash", {"command": "ls", "run_in_background": False}, "Bash", {"command": "ls"}),
    ("execute_bash", {"command": "ls", "is_input": "false"}, "Bash", {"command": "ls"}),
    ("Read", {"file_path": "/repo/a.py"}, "read", {"path": "a.py"}),
    ("Read", {"file_path": "/repo/a.py", "offset": 1}, "Read", {"file_path": "/repo/a.py", "limit": None}),
    ("Read", {"file_path": "a.py", "offset": 5, "limit": 4}, "view", {"path": "a.py", "view_range": [5, 8]}),
    ("Read", {"file_path": "a.py", "offset": 5}, "read_file", {"absolute_path": "/repo/a.py", "offset": 4}),
    ("Read", {"file_path": "a.py"}, "str_replace_editor", {"command": "view", "path": "/repo/a.py"}),
    ("Write", {"file_path": "b.py", "content": "x"}, "write_file", {"path": "./b.py", "content": "x"}),
    (
        "Write",
        {"file_path": "b.py", "content": "x"},
        "str_replace_editor",
        {"command": "create", "path": "/repo/b.py", "file_text": "x", "old_str": None},
    ),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "f():\n    return 1", "new_string": "f():\n    return 2"},
        "Edit",
        {"file_path": "a.py", "old_string": "def f():\n    return 1\n", "new_string": "def f():\n    return 2\n"},
    ),
    (
        "Edit",
        {"file_path": "/repo/a.py", "old_string": "f():\n    return 1", "new_string": "f():\n    return 2"},
        "apply_patch",
        {"input": PATCH},
    ),
    ("apply_patch", PATCH, "shell", {"command": ["apply_patch", PATCH]}),
    ("apply_patch", PATCH, "Bash", {"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF"}),
    (
        "edit",
        {"path": "a.py", "oldText": "f()", "newText": "h()"},
        "MultiEdit",
        {"file_path": "a.py", "edits": [{"old_string": "def f()", "new_string": "def h()"}]},
    ),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "f()", "new_string": "h()", "replace_all": True},
        "Edit",
        {"file_path": "a.py", "old_string": "f()", "new_string": "h()"},
    ),
    (
        "str_replace_editor",
        {"command": "insert", "path": "a.py", "insert_line": 0, "new_str": "import os"},
        "Edit",
        {"file_path": "a.py", "old_string": "def f", "new_string": "import os\ndef f"},
    ),
    ("Grep", {"pattern": "x", "-n": True, "-C": 5}, "Grep", {"pattern": "x", "path": "/repo", "context": 5}),
    ("Grep", {"pattern": "x", "path": "src"}, "search_file_content", {"pattern": "x", "dir_path": "./src"}),
    ("Glob", {"pattern": "*.py"}, "find", {"pattern": "*.py", "path": "."}),
    ("LS", {"path": "/repo"}, "list_directory", {"dir_path": "."}),
    ("Frob", {"a": 1, "b": None}, "Frob", {"a": 1.0}),
    ("Frob", '{"b": 2, "a": 1}', "Frob", {"a": 1, "b": 2}),
]


@pytest.mark.parametrize(("name", "arguments", "other", "others"), SAME, ids=[f"{a[0]} {a[1]}"[:60] for a in SAME])
def test_calls_with_one_effect_are_the_same(name: str, arguments: Any, other: str, others: Any) -> None:
    assert act(name, arguments).text == act(other, others).text
    assert same(act(name, arguments), act(other, others), "L3")


DIFFERENT = [
    ("Bash", {"command": "ls"}, "Bash", {"command": "ls", "run_in_background": True}),
    ("Bash", {"command": "ls"}, "Bash", {"command": "ls", "unheard_of": 1}),
    ("Bash", {"command": "ls"}, "Bash", {"command": "ls", "dangerouslyDisableSandbox": True}),
    ("Bash", {"command": "y"}, "execute_bash", {"command": "y", "is_input": True}),
    ("exec_command", {"cmd": "ls"}, "exec_command", {"cmd": "ls", "workdir": "/tmp"}),
    ("shell", {"command": ["echo", "$X"]}, "shell", {"command": ["bash", "-lc", "echo $X"]}),
    ("shell", {"command": ["ls", "a b"]}, "shell", {"command": ["ls", "a", "b"]}),
    ("Read", {"file_path": "a.py"}, "Read", {"file_path": "A.py"}),
    ("Read", {"file_path": "a.py"}, "Read", {"file_path": "a.py", "offset": 2}),
    ("Read", {"file_path": "a.py", "limit": 2}, "Read", {"file_path": "a.py"}),
    ("Read", {"file_path": "src/../a.py"}, "Read", {"file_path": "a.py"}),
    ("Read", {"file_path": "a.py"}, "Bash", {"command": "cat a.py b.py"}),
    ("Write", {"file_path": "b.txt", "content": "x"}, "Write", {"file_path": "b.txt", "content": "x\n"}),
    ("Write", {"file_path": "a.py", "content": "x"}, "create_file", {"path": "a.py", "content": "x"}),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "    return 1", "new_string": "    return 2"},
        "Edit",
        {"file_path": "a.py", "old_string": "    return 1", "new_string": "    return 2", "replace_all": True},
    ),
    (
        "Edit",
        {"file_path": "a.py", "old_string": "f()", "new_string": "h()"},
        "Edit",
        {"file_path": "a.py", "old_string": "f()", "new_string": "h(1)"},
    ),
    (
        "Edit",
        {"file_path": "unknown.py", "old_string": "a", "new_string": "b"},
        "Edit",
        {"file_path": "unknown.py", "old_string": "a ", "new_string": "b "},
    ),
    ("apply_patch", {"input": PATCH}, "apply_patch", {"input": PATCH.replace("return 2", "return 3")}),
    ("apply_patch", {"input": PATCH}, "apply_patch", {"input": PATCH.replace("a.py", "b.py")}),
    ("Grep", {"pattern": "x"}, "Grep", {"pattern": "X"}),
    ("Grep", {"pattern": "x"}, "Grep", {"pattern": "x", "-i": True}),
    ("Grep", {"pattern": "x"}, "Grep", {"pattern": "x", "glob": "*.py"}),
    ("Grep", {"pattern": "x"}, "Grep", {"pattern": "x", "path": "src"}),
    ("Grep", {"pattern": "x", "head_limit": 50}, "Grep", {"pattern": "x"}),
    ("Grep", {"pattern": "x", "-A": 3}, "Grep", {"pattern": "x", "-A": 30}),
    ("Grep", {"pattern": "x", "head_limit": 50}, "Grep", {"pattern": "x", "head_limit": 50, "offset": 50}),
    ("Grep", {"pattern": "./x"}, "Grep", {"pattern": "x"}),
    ("Frob", {"path": "./a"}, "Frob", {"path": "a"}),
    ("Frob", {"a": "1"}, "Frob", {"a": 1}),
    ("Frob", {"a": True}, "Frob", {"a": 1}),
    ("Frob", {"a": [1, 2]}, "Frob", {"a": [2, 1]}),
    ("Frob", {"a": ""}, "Frob", {}),
    ("Frob", {}, "frob", {}),
    ("Frob", "{broken", "Frob", {}),
]


@pytest.mark.parametrize(
    ("name", "arguments", "other", "others"), DIFFERENT, ids=[f"{a[0]} {a[1]} {a[3]}"[:80] for a in DIFFERENT]
)
def test_calls_with_different_effects_are_different(name: str, arguments: Any, other: str, others: Any) -> None:
    assert act(name, arguments).text != act(other, others).text


def test_paths_of_a_windows_session_are_windows_paths() -> None:
    spellings = ["C:\\repo\\src\\a.py", "c:/repo/src/a.py", "src\\a.py", "src/a.py", ".\\src\\\\a.py"]
    assert len({act("Read", {"file_path": path}, WINDOWS).text for path in spellings}) == 1
    assert act("Read", {"file_path": "src\\a.py"}).text != act("Read", {"file_path": "src/a.py"}).text
    assert (
        act("Read", {"file_path": "D:\\repo\\a.py"}, WINDOWS).text != act("Read", {"file_path": "a.py"}, WINDOWS).text
    )


def test_a_windows_command_is_parsed_only_if_every_shell_reads_it_alike() -> None:
    def text(command: str) -> str:
        return act("Bash", {"command": command}, WINDOWS).text

    assert text("git  status") == text("git status")
    assert text("type a\\b") != text("type ab")
    assert text("echo 'a''b'") != text("echo ab")
    assert text("echo ^%X^%") != text("echo %X%")


def test_without_a_working_directory_relative_and_absolute_paths_stay_apart() -> None:
    nowhere = ActionContext()
    assert act("Read", {"file_path": "a.py"}, nowhere).text != act("Read", {"file_path": "/repo/a.py"}, nowhere).text
    assert act("Read", {"file_path": "./a.py"}, nowhere).text == act("Read", {"file_path": "a.py"}, nowhere).text


def test_a_schema_types_arguments_and_drops_its_defaults() -> None:
    schema = {"properties": {"deep": {"type": "boolean", "default": False}, "n": {"type": "integer"}}}
    context = ActionContext(tools={"Frob": schema})
    assert act("Frob", {"deep": "false", "n": "5"}, context).text == act("Frob", {"n": 5}, context).text
    assert act("Frob", {"deep": True, "n": 5}, context).text != act("Frob", {"n": 5}, context).text
    share = ActionContext(tools={"Frob": {"properties": {"share": {"type": "number"}}}})
    assert act("Frob", {"share": "2.5"}, share).text == act("Frob", {"share": 2.5}, share).text
    assert act("Frob", {"share": "2.5"}, share).problem == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"n": 5}, ""),
        ({}, "invalid_args"),
        ({"n": "five"}, "invalid_args"),
        ("{", "invalid_args"),
        ("[]", "invalid_args"),
    ],
)
def test_arguments_that_miss_the_schema_are_invalid(arguments: Any, problem: str) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert act("Frob", arguments, ActionContext(tools={"Frob": schema})).problem == problem


@pytest.mark.parametrize("depth", [600, 5000])
def test_deeply_nested_arguments_are_invalid(depth: int) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    assert act("Bash", {"command": deep}).problem == "invalid_args"
    assert act("Bash", '{"command": ' + "[" * depth + "]" * depth + "}").problem == "invalid_args"


def test_text_without_calls_and_unknown_tools_are_problems() -> None:
    assert normalize(Message("assistant", "Done."), REPO).problem == "text_only"
    assert act("Frob", {}, ActionContext(tools={"Bash": {}})).problem == "unknown_tool"


def test_a_part_of_a_file_in_a_shell_equals_a_reading_tool_at_l3_only() -> None:
    read, cat = act("Read", {"file_path": "a.py"}), act("Bash", {"command": "cat /repo/a.py | head -20"})
    assert not same(read, cat, "L2")
    assert same(read, cat, "L3")
    assert same(read, cat, "L4")


def test_a_write_and_an_edit_that_leave_the_same_text_have_the_same_result() -> None:
    edit = act("Edit", {"file_path": "a.py", "old_string": "f()", "new_string": "h()"})
    write = act("Write", {"file_path": "/repo/a.py", "content": FILE.replace("f()", "h()")})
    assert edit.results == write.results != ""
    assert act("Bash", {"command": "ls"}).results == ""


COMMANDS = st.sampled_from(
    [
        "ls -la",
        "ls -al",
        "rm -rf ./a",
        "rm -r -f a",
        "cat a.py",
        "cat ./a.py",
        "grep x a",
        "cd /repo && ls -la",
        "for i",
    ]
)
CALLS = st.one_of(
    st.tuples(st.sampled_from(["Bash", "execute_bash", "exec_command"]), st.fixed_dictionaries({"command": COMMANDS})),
    st.tuples(
        st.sampled_from(["Read", "read", "Frob"]),
        st.fixed_dictionaries({"path": st.sampled_from(["a.py", "./a.py", "/repo/a.py", "b"])}),
    ),
    st.tuples(
        st.just("Edit"),
        st.fixed_dictionaries(
            {
                "file_path": st.sampled_from(["a.py", "/repo/a.py"]),
                "old_string": st.sampled_from(["f()", "def f()"]),
                "new_string": st.sampled_from(["h()", "def h()"]),
            }
        ),
    ),
)
ACTIONS = st.builds(
    lambda text, calls: Message("assistant", text, tuple(ToolCall(name, arguments) for name, arguments in calls)),
    st.sampled_from(["", "ok"]),
    st.lists(CALLS, max_size=2),
)


@stable
@given(ACTIONS, ACTIONS)
def test_equal_at_one_level_is_equal_at_every_coarser_one(one: Message, other: Message) -> None:
    a, b = normalize(one, REPO), normalize(other, REPO)
    equal = [same(a, b, level) for level in LEVELS]
    assert equal == sorted(equal)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@stable
@given(
    st.sampled_from(["Bash", "Read", "Edit", "MultiEdit", "apply_patch", "Grep", "LS", "str_replace_editor", "x"]), JSON
)
def test_any_arguments_have_a_normal_form(name: str, arguments: Any) -> None:
    keys = ("command", "path", "file_path", "pattern", "edits", "input", "old_string", "new_string", "view_range")
    for given_arguments in (arguments, dict.fromkeys(keys, arguments), dict.fromkeys(keys[:2], arguments)):
        assert json.dumps(act(name, given_arguments).levels)


# ---------------------------------------------------------------------------------------- the state before a step


def last(trace: Trace) -> ActionContext:
    return list(contexts(trace))[-1][1]


def test_the_directory_of_a_lasting_shell_is_unknown_after_a_cd(make_trace: Callable[..., Trace]) -> None:
    moved = make_trace(("Bash", {"command": "cd pkg && ls"}), ("Bash", {"command": "ls"}))
    stayed = make_trace(("Bash", {"command": "cd /repo && ls && (cd pkg; ls)"}), ("Bash", {"command": "ls"}))
    fresh = make_trace(("bash", {"command": "cd pkg && ls"}), ("bash", {"command": "ls"}), source="pi")
    assert [last(trace).shell_cwd for trace in (moved, stayed, fresh)] == ["", "/repo", "/repo"]


@pytest.mark.parametrize(
    ("task", "paths", "cwd"),
    [
        ("Working directory: /home/u/proj", [], "/home/u/proj"),
        ("<cwd>/home/u/proj</cwd>", [], "/home/u/proj"),
        ("The current working directory is `/home/u/proj`.", ["/tmp/src/a.py", "src/a.py"], "/home/u/proj"),
        ("cwd: /one, then the workspace folder: /two", [], ""),
        ("Fix it.", ["/home/u/proj/src/a.py", "src/a.py"], "/home/u/proj"),
        ("Fix it.", ["/home/u/proj/src/a.py", "/home/u/proj/b.py"], ""),
        ("Fix it.", ["/one/src/a.py", "/two/src/a.py", "src/a.py"], ""),
        ("Fix it.", ["/home/u/proj/a.py", "a.py"], ""),  # the name alone is no evidence
    ],
)
def test_the_directory_of_a_session_that_records_none_is_inferred_if_it_is_certain(
    make_trace: Callable[..., Trace], task: str, paths: list[str], cwd: str
) -> None:
    calls = [("Read", {"file_path": path}) for path in paths] or [("Bash", {"command": "ls"})]
    trace = make_trace(*calls, cwd="")
    opening = dataclasses.replace(trace.messages[1], content=task)
    trace = dataclasses.replace(trace, messages=(trace.messages[0], opening, *trace.messages[2:]))
    assert {context.cwd for _, context in contexts(trace)} == {cwd}


def test_the_text_of_a_file_is_known_after_a_write_an_edit_and_a_full_read(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        ("Write", {"file_path": "/repo/a.py", "content": "x = 1\n"}),
        ("Edit", {"file_path": "a.py", "old_string": "1", "new_string": "2"}),
        ("Read", {"file_path": "b.py"}),
        ("Read", {"file_path": "c.py", "limit": 2}),
        ("Bash", {"command": "git status"}),
        ("Bash", {"command": "true"}),
        results=["ok", "ok", "     1→y = 1\n     2→", "     1→z\n     2→"],
    )
    assert last(trace).files == {"a.py": "x = 2\n", "b.py": "y = 1\n\n"}


@pytest.mark.parametrize(
    "action",
    [
        ("Bash", {"command": "black ."}),
        ("Bash", {"command": "for f in *; do rm $f; done"}),
        ("Task", {"prompt": "change it"}),
        ("Edit", {"file_path": "a.py", "old_string": "nowhere", "new_string": "2"}),
        ("apply_patch", {"input": PATCH}),
    ],
    ids=lambda action: action[0],
)
def test_a_call_that_may_change_a_file_makes_it_unknown(make_trace: Callable[..., Trace], action: Any) -> None:
    trace = make_trace(("Write", {"file_path": "a.py", "content": "x"}), action, ("Bash", {"command": "ls"}), tools=())
    assert last(trace).files == {}


def test_an_edit_that_failed_changed_nothing(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(
        ("Write", {"file_path": "a.py", "content": "x"}),
        ("Edit", {"file_path": "a.py", "old_string": "x", "new_string": "y"}),
        ("Bash", {"command": "ls"}),
        errors=[1],
    )
    assert last(trace).files == {"a.py": "x"}


@pytest.mark.parametrize(
    "listing", ["     2→x", "     1→x\n     3→y", "plain", "     1→x\n... truncated", "     1→" + "x" * 2000, ""]
)
def test_an_incomplete_listing_is_not_a_whole_file(listing: str) -> None:
    assert whole_file(listing) is None


def test_a_script_is_compared_by_all_the_calls_that_it_makes():
    script = "const rs = await Promise.all(['ls', 'pwd'].map(cmd => tools.exec_command({cmd}))); rs.forEach(text);"
    two = Message("assistant", "", (ToolCall("Bash", {"command": "ls"}), ToolCall("Bash", {"command": "pwd"})))
    form = act("exec", {"input": script})
    assert same(form, normalize(two, REPO))
    assert not same(form, act("Bash", {"command": "ls"}), "L3")
    assert script in json.loads(form.at("L0").removeprefix("\nexec "))["input"]


def test_scripts_that_are_not_plain_are_the_same_only_as_written():
    one, other = (act("exec", {"input": f"await tools[{name}]({{}})"}) for name in ("a", "b"))
    assert same(one, one)
    assert not same(one, other)
