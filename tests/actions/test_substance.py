"""Words of code and commands: another edit of the right file differs, the same edit in another spelling does not."""

from __future__ import annotations

from typing import Any

import pytest

from composer_hub.actions.forms import ActionContext, NormalForm, close, normalize, same
from composer_hub.records import Message, ToolCall

EDIT = ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 2"})
WIDER = ("Edit", {"file_path": "a.py", "old_string": "x = 1\ny = 3\n", "new_string": "x = 2\ny = 3\n"})
PATCH = ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n y = 3\n*** End Patch"})
OTHER = ("Edit", {"file_path": "a.py", "old_string": "x = 1", "new_string": "x = 3"})
RULED = ("Edit", {"file_path": "a.py", "old_string": "if a < b:", "new_string": "if a <= b:"})
RULED_OTHERWISE = ("Edit", {"file_path": "a.py", "old_string": "if a < b:", "new_string": "if a > b:"})
INSERTED = ("Edit", {"file_path": "a", "old_string": "  one()", "new_string": "  one()\n  two()"})
INSERTED_WIDER = (
    "Edit",
    {"file_path": "a", "old_string": "  one()\n  six()", "new_string": "  one()\n  two()\n  six()"},
)
SED = ("Bash", {"command": "sed -i 's/x = 1/x = 2/' a.py"})


def form(name: str, arguments: Any) -> NormalForm:
    return normalize(Message("assistant", "", (ToolCall(name, arguments),)), ActionContext("/repo", "/repo"))


def bash(command: str) -> tuple[str, dict[str, str]]:
    return "Bash", {"command": command}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (EDIT, WIDER),
        (EDIT, PATCH),
        (EDIT, SED),  # two styles: nothing is claimed
        (("Write", {"file_path": "a.py", "content": "x=1\n"}), ("Write", {"file_path": "a.py", "content": "x = 1"})),
        (bash("pytest tests/test_a.py -x --tb=short 2>&1"), bash("pytest -x ./tests/test_a.py --tb=short | tail -5")),
        (bash("cd /repo && make build"), bash("echo building; make build > /dev/null")),
        (bash("ruff check src/"), bash("ruff check ./src")),
        (("Read", {"file_path": "a.py"}), ("Read", {"file_path": "a.py", "offset": 9})),
        (("Grep", {"pattern": "x", "path": "src"}), bash("grep -rn x src")),
        (("Grep", {"pattern": "x", "-A": 3}), ("Grep", {"pattern": "x", "-A": 5})),
        (("Read", {"file_path": "a.py", "limit": 90}), ("Read", {"file_path": "a.py", "offset": 20, "limit": 100})),
        (("Read", {"file_path": "src/../a.py"}), ("Read", {"file_path": "a.py"})),
        (
            ("WebFetch", {"url": "http://a/b/", "prompt": "What?"}),
            ("WebFetch", {"url": "http://a/b", "prompt": "Why?"}),
        ),
        (bash("tool --quiet x -j4"), bash("tool -q x -j 4")),
        (bash("chmod 0755 a"), bash("chmod 755 a")),
        (INSERTED, INSERTED_WIDER),
    ],
)
def test_one_intention_in_two_spellings_is_close(one: Any, other: Any) -> None:
    assert close(form(*one), form(*other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (EDIT, OTHER),
        (RULED, RULED_OTHERWISE),
        (("Write", {"file_path": "a.py", "content": "x"}), ("Write", {"file_path": "a.py", "content": "y"})),
        (bash("pytest -k one a.py"), bash("pytest -k two a.py")),
        (bash("python -c 'print(1)'"), bash("python -c 'print(2)'")),
        (bash("git reset HEAD~1"), bash("git reset --hard HEAD~1")),
        (("Grep", {"pattern": "x", "path": "src"}), ("Grep", {"pattern": "y", "path": "src"})),
        (("Grep", {"pattern": "x"}), ("Grep", {"pattern": "x", "glob": "*.py"})),
        (("Glob", {"pattern": "*.py"}), ("Glob", {"pattern": "**/*.py"})),
        (("Read", {"file_path": "a", "limit": 99}), ("Read", {"file_path": "a", "offset": 100, "limit": 99})),
        (EDIT, ("Edit", {**EDIT[1], "replace_all": True})),
        (
            ("Edit", {"file_path": "a", "old_string": "f(a, b)", "new_string": "f(b, a)"}),
            ("Edit", {"file_path": "a", "old_string": "f(a, b)", "new_string": "f(b, b)"}),
        ),
        (
            ("Edit", {"file_path": "a", "old_string": "  x", "new_string": "  y"}),
            ("Edit", {"file_path": "a", "old_string": "  x", "new_string": "    y"}),
        ),
        (("TodoWrite", {"todos": ["a", "b"]}), ("TodoWrite", {"todos": ["a", "c"]})),
        (bash("cp a b"), bash("cp b a")),
        (bash("a && b"), bash("a || b")),
        (bash("run &"), bash("run")),
        (bash("run > a"), bash("run >> a")),
        (bash("cd src && make"), bash("make")),
        (bash("tool --fast x"), bash("tool --force x")),
        (bash("ps aux | grep one"), bash("ps aux | grep two")),
    ],
)
def test_other_code_on_the_same_target_is_not_close(one: Any, other: Any) -> None:
    assert same(form(*one), form(*other), "L3")
    assert not close(form(*one), form(*other))
    assert close(form(*one), form(*other), "L4")
