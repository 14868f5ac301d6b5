"""The subject of a call: its family, its path, its commands, under the names of every harness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.calls import call_in_text, command_of, path_of
from composer_hub.actions.commands import commands_in
from composer_hub.actions.tools import TOOLS, family_of_tool
from composer_hub.errors.exits import main_command, prints_files, purpose_of
from composer_hub.records import ToolCall
from tests.quick import cases


@pytest.mark.parametrize(
    ("name", "arguments", "family"),
    [
        ("Bash", {}, "shell"),
        ("exec_command", {}, "shell"),
        ("functions.exec_command", {}, "shell"),
        ("mcp__files__read_file", {}, "read"),
        ("MultiEdit", {}, "edit"),
        ("str_replace_editor", {"command": "view"}, "read"),
        ("str_replace_editor", {"command": "str_replace"}, "edit"),
        ("Task", {}, "agent"),
        ("WebFetch", {}, "web"),
        ("BashOutput", {}, "poll"),
        ("submit", {}, "finish"),
        ("", None, "other"),
        ("mcp__x__y", "text", "other"),
    ],
)
def test_a_tool_has_one_family_whatever_its_harness(name: str, arguments: object, family: str) -> None:
    assert family_of_tool(name, arguments) == family


def test_every_name_is_in_the_table_once() -> None:
    names = [name for tool in TOOLS for name in tool.names]
    assert sorted(names) == sorted(set(names))


def test_a_path_is_found_under_any_of_its_keys_and_in_a_patch() -> None:
    assert path_of(ToolCall("Read", {"file_path": "/a"})) == "/a"
    assert path_of(ToolCall("view", {"path": "/b", "view_range": [1, 2]})) == "/b"
    assert path_of(ToolCall("apply_patch", "*** Begin Patch\n*** Update File: src/c.py\n@@")) == "src/c.py"
    assert path_of(ToolCall("shell", {"command": ["apply_patch", "x"]})) == ""


def test_a_command_is_found_whether_text_or_list() -> None:
    assert command_of(ToolCall("Bash", {"command": "ls -a"})) == "ls -a"
    assert command_of(ToolCall("shell", {"command": ["bash", "-lc", "ls -a"]})) == "ls -a"
    assert command_of(ToolCall("shell", {"command": ["ls", "-a", "b", "c"]})) == "ls -a b c"
    assert command_of(ToolCall("x", None)) == ""


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        ("cd a && FOO=1 timeout 30 uv run pytest -q 2>&1 | tail -5", ["cd", "pytest", "tail"]),
        ("cat <<'EOF' > x.py\nimport os; rm -rf\nEOF\npython x.py", ["cat", "python"]),
        ("git commit -m \"$(cat <<'EOF'\nAdd (x) 'y; rm\nEOF\n)\" && git push", ["cat", "git", "git"]),
        ("echo \"$(git log $(git merge-base a b) | head -1)\" '$(rm x)' $((1 + 2))", ["git", "git", "head", "echo"]),
        ("x=$(pytest -q", ["pytest"]),
        ("grep -n 'a|b && c' \"f; g\" || true", ["grep", "true"]),
        ("/usr/bin/python3 x.py > out.txt 2>/dev/null &", ["python3"]),
        ("(cd x; make)", ["cd", "make"]),
        ("# only a comment", []),
        (
            "sudo -u root rm x; timeout -s KILL 60 make; env -u A nice -n 5 make; uv run --with x pytest",
            ["rm", "make", "make", "pytest"],
        ),
        ("sudo 7z x a | xargs -I {} rm {}", ["7z", "rm"]),
        ("if [ -f a ]; then cat a; fi", ["[", "cat"]),
        ('echo "unterminated', ["echo"]),
    ],
)
def test_a_shell_text_is_split_into_its_commands(text: str, programs: list[str]) -> None:
    assert [command.program for command in commands_in(text)] == programs


@pytest.mark.parametrize(
    ("text", "purpose"),
    [
        ("cd a && npm test 2>&1 | tail -3", "test"),
        ("python -m pytest tests", "test"),
        ("python tests/run_all.py", ""),
        ("mise run test:ci", "test"),
        ("go vet ./...", "check"),
        ("npm run build", "check"),
        ("make", ""),
        ("git diff --quiet", "probe"),
        ("git commit -m x", "hooked"),
        ("git stash list", "vcs"),
        ("ps aux | grep foo", "search"),
        ("curl -sf http://x", "remote"),
    ],
)
def test_the_main_command_gives_the_purpose_of_a_line(text: str, purpose: str) -> None:
    main = main_command(commands_in(text))
    assert main is not None
    assert purpose_of(main) == purpose


def test_lines_that_only_show_files_are_recognized() -> None:
    assert prints_files(commands_in("cd a && cat b | head -3"))
    assert prints_files(commands_in("git show HEAD"))
    assert not prints_files(commands_in("cat a && python b.py"))


def test_the_last_call_of_a_text_protocol_counts() -> None:
    first = "<function=bash>\n<parameter=command>a</parameter>\n</function>\n"
    second = "<function=edit>\n<parameter=path>b</parameter>\n</function>"
    assert call_in_text(first + second) == ToolCall("edit", {"path": "b"})
    assert call_in_text("```\na\n```\n```bash\nb\n```") == ToolCall("bash", {"command": "b"})
    assert call_in_text("no call") == ToolCall("", None)


@cases(150)
@given(st.text(alphabet="ab \n|&;<>'\"\\$(){}EOF`#=-", max_size=300))
def test_any_text_can_be_split_into_commands(text: str) -> None:
    for command in commands_in(text):
        assert command.words
        assert all(isinstance(word, str) for word in command.words)
