"""Actions whose difference is not certain to matter have one purpose; a known difference is kept."""

from __future__ import annotations

from typing import Any

import pytest

from composer_hub.actions.forms import ActionContext, NormalForm, normalize, same, same_aim
from composer_hub.records import Message, ToolCall

CONTEXT = ActionContext(cwd="/repo", shell_cwd="/repo")


def form(name: str, arguments: dict[str, Any]) -> NormalForm:
    return normalize(Message("assistant", "", (ToolCall(name, arguments, "c"),)), CONTEXT)


def bash(command: str) -> NormalForm:
    return form("Bash", {"command": command})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("frob build -j 8", "frob build --parallel 8"),
        ("frob run --only One src", "frob run src --only One"),
        ("frob get po -n web", "frob get po --namespace=web"),
        ("frob add a --no-progress", "frob add a"),
        ("frob show x | less", "frob show x"),
        ("timeout 60 frob a", "frob a"),
        ("export A=1; frob", "A=1 frob"),
        ("frob a; deploy", "frob a && deploy"),
        ("python tool.py a", "./tool.py a"),
        ("bundle exec frob a", "frob a"),
        ("cat a.toml | frob .x", "frob .x a.toml"),
        ("npm i x", "npm install x"),
    ],
)
def test_commands_that_name_the_same_have_one_purpose(one: str, other: str) -> None:
    assert same_aim(bash(one), bash(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("frob build a", "frob build b"),
        ("frob up --force", "frob up"),
        ("frob a b", "frob b a"),
        ("cp -r a b", "cp -r b a"),
        ("frob --min 3", "frob --max 3"),
        ("frob && deploy", "frob || deploy"),
        ("frob > x", "frob >> x"),
        ("frob > x 2>&1", "frob 2>&1 > x"),
        ("find . -name a -delete", "find . -delete -name a"),
        ("git checkout -b x", "git checkout x"),
        ("docker compose down -v", "docker compose down"),
        ("uv run pytest", "pytest"),
        ("sed s/a/b/ f", "sed -i s/a/b/ f"),
        ("cat > f <<'EOF'\n$A\nEOF", "cat > f <<EOF\n$A\nEOF"),
    ],
)
def test_a_difference_that_is_known_to_matter_is_another_purpose(one: str, other: str) -> None:
    assert not same_aim(bash(one), bash(other))


def test_a_script_that_makes_an_edit_has_its_purpose_and_one_that_makes_another_does_not() -> None:
    edit = form("Edit", {"file_path": "/repo/a.py", "old_string": "x == None", "new_string": "x is None"})
    script = "python3 - <<'EOF'\ns = open('{}').read()\nopen('{}', 'w').write(s.replace('x == None', '{}'))\nEOF"
    assert same_aim(edit, bash(script.format("a.py", "a.py", "x is None")))
    assert not same_aim(edit, bash(script.format("b.py", "b.py", "x is None")))
    assert not same_aim(edit, bash(script.format("a.py", "a.py", "not x")))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("for n in 1 2; do run $n; done", "run 1; run 2", True),
        ('for n in a b; do cp "$n.x" out/; done', "cp a.x out/; cp b.x out/", True),
        ("for n in 1 2; do run $n; done", "run 2; run 1", False),
        ("for n in 'a b' c; do run $n; done", "run 'a b'; run c", False),
        ("for n in 1 2; do run $n || break; done", "run 1 || break; run 2 || break", False),
        ("for n in 1 2; do n=3; run $n; done", "n=3; run 1; n=3; run 2", False),
        ("npm test 2>&1 | tail -40", "npm test", True),
        ("npm test 2>&1 | tail -5", "npm test", False),
        ("npm test; echo $?", "npm test", True),
        ("make 2>&1 | tee log", "make | tee log", False),
        ("git commit -am x", "git add -u && git commit -m x", True),
        ("psql -c 'SELECT a FROM t;'", "psql -c 'select a from t'", True),
        ("psql -c \"select a from t where b = 'X'\"", "psql -c \"select a from t where b = 'x'\"", False),
        ("jq '.[] | .a' f", "jq '.[]|.a' f", True),
        ("git mv src/a.py src/b.py", "git mv /repo/src/a.py /repo/src/b.py", True),
        ("go test ./a", "go test a", False),
    ],
)
def test_what_is_only_written_otherwise_is_the_same(one: str, other: str, is_same: bool) -> None:
    assert same(bash(one), bash(other)) is is_same


@pytest.mark.parametrize(
    ("file", "one", "other", "is_same"),
    [
        ("a.json", '{"a": 1, "b": 2}', '{"b": 2,\n "a": 1}', True),
        ("a.json", '{"a": 1, "a": 2}', '{"a": 2}', False),
        ("a.json", '{"a": 1}', '{"a": "1"}', False),
        ("a.py", "x = 'a'\n", 'x = "a"', True),
        ("a.py", "if x:\n  a()\nb()", "if x:\n  a()\n  b()", False),
        ("a.go", "func f() {\n\treturn\n}\n", "func f() {\n  return\n}", True),
        ("a.ts", "const a = `x\n  y`", "const a = `x\ny`", False),
        ("a.yaml", "a:\n  b: 1", "a:\nb: 1", False),
    ],
)
def test_files_are_compared_by_what_their_language_reads(file: str, one: str, other: str, is_same: bool) -> None:
    forms = [form("Write", {"file_path": file, "content": text}) for text in (one, other)]
    assert same(*forms) is is_same
