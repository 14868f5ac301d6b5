"""Actions that differ in nothing that is certain to matter are close; what is known to matter keeps them apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions import programs
from composer_hub.actions.forms import (
    LEVELS,
    ActionContext,
    NormalForm,
    close,
    normalize,
    same,
    same_aim,
    shared_levels,
)
from composer_hub.pairs.policy import Policy
from composer_hub.records import Message, ToolCall
from tests.quick import cases

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ {}\n-x = 1\n+x = 2\n*** End Patch"


def act(*calls: Any) -> NormalForm:
    """Return the form of calls; a text is a command of the shell."""
    named = [("Bash", {"command": call}) if isinstance(call, str) else call for call in calls]
    made = tuple(ToolCall(name, own, str(at)) for at, (name, own) in enumerate(named))
    return normalize(Message("assistant", "", made), ActionContext(cwd="/repo", shell_cwd="/repo"))


def edit(old: str, new: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return "Edit", {"file_path": "a.py", "old_string": old, "new_string": new, **options}


def read(**lines: int) -> tuple[str, dict[str, Any]]:
    return "Read", {"file_path": "a.py", **lines}


def write(content: str) -> tuple[str, dict[str, Any]]:
    return "Write", {"file_path": "a.py", "content": content}


# Certain: the same at L2.
SAME = [
    (["rm -rf build dist"], ["rm -r -f -- dist build"]),
    (["pytest tests/b.py tests/a.py -q"], ["pytest -q tests/a.py tests/b.py"]),
    (["git checkout -- a.py"], ["git restore a.py"]),
    (["python train.py --lr 0.1 d.csv"], ["python ./train.py d.csv --lr=0.1"]),
    (["xyz --a 1 --b 2"], ["xyz --b=2 --a=1"]),
    (["kubectl get po -n web"], ["kubectl -n web get pods"]),
    (["npm i x"], ["npm install x"]),
    (["npm run test"], ["npm test"]),
    ([edit("x = 1", "x = 2")], [edit("def f():\n    x = 1\n", "def f():\n    x = 2\n")]),
    ([edit("x = 1\ny = 1\n", "x = 2\ny = 2\n")], [edit("y = 1", "y = 2"), edit("x = 1", "x = 2")]),
    ([edit("f\nx = 1\n", "f\nx = 2\n")], [("apply_patch", {"input": PATCH.format("")})]),
]
# Not certain, but nothing that is named differs.
CLOSE = [
    (["git add a && git add b"], ["git add b a"]),
    (["cat a.log | grep -n x"], ["grep -n x < a.log"]),
    (["head -n 9 a.log"], ["sed -n 1,9p a.log"]),
    (["env B=2 A=1 make"], ["A=1 B=2 make"]),
    (["sed -i 's|a|b|g' x"], ["sed -i s/a/b/g x"]),
    (["npm --prefix web test"], ["cd web && npm run test"]),
    (["pip install -q b a"], ["python -m pip install a b"]),
    (["find . -type f -name a"], ["find . -name a -type f"]),
    (["frob get po -n web"], ["frob get po --namespace=web"]),
    (["frob add a --no-progress"], ["frob add a"]),
    (["frob show x | less"], ["frob show x"]),
    (["timeout 60 frob a"], ["frob a"]),
    (["export A=1; frob"], ["A=1 frob"]),
    (["frob a; deploy"], ["frob a && deploy"]),
    (["(cd docs && make html)"], ["make -C docs html"]),
    (["cat a.toml | frob .x"], ["frob .x a.toml"]),
    (["npm test 2>&1 | tail -40"], ["npm test"]),
    (["jq '.[] | .a' f"], ["jq '.[]|.a' f"]),
    (["echo building; make build > /dev/null"], ["cd /repo && make build"]),
    (["tool --quiet x -j4"], ["tool -q x -j 4"]),
    (["chmod 0755 a"], ["chmod 755 a"]),
    (["grep -rn x src"], [("Grep", {"pattern": "x", "path": "src"})]),
    (["cat > a.py <<'EOF'\nx\nEOF"], [write("x\n")]),
    (["sed -i 's|x = 1|x = 2|' a.py"], [edit("x = 1", "x = 2")]),
    (["sed -n 10,60p a.py"], [read(offset=10, limit=60)]),
    ([write("x=1\n")], [write("x = 1")]),
    ([read()], [read(offset=9)]),
    ([read(limit=90)], [read(offset=20, limit=100)]),
    (
        [("WebFetch", {"url": "http://a/b/", "prompt": "What?"})],
        [("WebFetch", {"url": "http://a/b", "prompt": "Why?"})],
    ),
]
APART = [
    (["kill -0 7"], ["kill 7"]),
    (["git stash pop"], ["git stash push"]),
    (["git checkout main"], ["git checkout -- main"]),
    (["git checkout a.py"], ["git switch a.py"]),
    (["ln -s a b"], ["ln -s b a"]),
    (["cp a b"], ["cp b a"]),
    (["cp -r a b"], ["cp -r b a"]),
    (["frob a b"], ["frob b a"]),
    (["frob build a"], ["frob build b"]),
    (["frob up --force"], ["frob up"]),
    (["frob --min 3"], ["frob --max 3"]),
    (["frob && deploy"], ["frob || deploy"]),
    (["frob > x"], ["frob >> x"]),
    (["frob > x 2>&1"], ["frob 2>&1 > x"]),
    (["cat > f <<'EOF'\n$A\nEOF"], ["cat > f <<EOF\n$A\nEOF"]),
    (["git checkout -b x"], ["git checkout x"]),
    (["docker compose down -v"], ["docker compose down"]),
    (["docker run -p 80:8080 x"], ["docker run -p 8080:80 x"]),
    (["uv run pytest"], ["pytest"]),
    (["sed s/a/b/ f"], ["sed -i s/a/b/ f"]),
    (["sed -i s/x/y/ a.py"], ["sed -i.bak s/x/y/ a.py"]),
    (["sed -n 1,40p a.py"], ["sed -n 300,340p a.py"]),
    (["grep x a.py"], ["grep -v x a.py"]),
    (["sleep 9 &"], ["sleep 9"]),
    (["cd src && make"], ["make"]),
    (["git reset HEAD~1"], ["git reset --hard HEAD~1"]),
    (["pytest -k one a.py"], ["pytest -k two a.py"]),
    (["python -c 'print(1)'"], ["python -c 'print(2)'"]),
    (["ps aux | grep one"], ["ps aux | grep two"]),
    (["for n in 1 2; do run $n; done"], ["run 2; run 1"]),
    ([edit("x = 1", "x = 2")], [edit("x = 1", "x = 3")]),
    ([edit("if a < b:", "if a <= b:")], [edit("if a < b:", "if a > b:")]),
    ([edit("f(a, b)", "f(b, a)")], [edit("f(a, b)", "f(b, b)")]),
    ([edit("  x", "  y")], [edit("  x", "    y")]),
    ([edit("x", "y", replace_all=True)], [edit("x", "y")]),
    ([edit("def f():\n    x = 1", "def f():\n    x = 2")], [edit("def g():\n    x = 1", "def g():\n    x = 2")]),
    ([("apply_patch", {"input": PATCH.format("def f():")})], [("apply_patch", {"input": PATCH.format("def g():")})]),
    ([write("if x:\n  a()\nb()")], [write("if x:\n  a()\n  b()")]),
    ([read(limit=99)], [read(offset=100, limit=99)]),
    ([("Grep", {"pattern": "x"})], [("Grep", {"pattern": "x", "glob": "*.py"})]),
    ([("Glob", {"pattern": "*.py"})], [("Glob", {"pattern": "**/*.py"})]),
]


def veto(one: NormalForm, other: NormalForm) -> bool:
    assert bool(Policy().veto(one, other)) == bool(Policy().veto(other, one))
    return bool(Policy().veto(one, other))


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_is_certain_is_the_same_action(one: list[Any], other: list[Any]) -> None:
    assert same(act(*one), act(*other))
    assert close(act(*one), act(*other))


@pytest.mark.parametrize(("one", "other"), CLOSE)
def test_actions_that_name_the_same_are_close_and_not_the_same(one: list[Any], other: list[Any]) -> None:
    assert veto(act(*one), act(*other))
    assert not same(act(*one), act(*other))


@pytest.mark.parametrize(("one", "other"), APART)
def test_a_difference_that_is_known_to_matter_keeps_actions_apart(one: list[Any], other: list[Any]) -> None:
    assert not veto(act(*one), act(*other))


def test_a_script_that_makes_an_edit_has_its_aim_and_one_that_makes_another_does_not() -> None:
    change = act(edit("x == None", "x is None"))
    script = "python3 - <<'EOF'\ns = open('{}').read()\nopen('{}', 'w').write(s.replace('x == None', '{}'))\nEOF"
    assert same_aim(change, act(script.format("a.py", "a.py", "x is None")))
    assert not same_aim(change, act(script.format("b.py", "b.py", "x is None")))
    assert not same_aim(change, act(script.format("a.py", "a.py", "not x")))


def test_forms_that_are_the_same_get_one_text() -> None:
    forms = [act(edit("x = 1", "x = 2")), act(edit("f\nx = 1", "f\nx = 2")), act(edit("x = 1", "x = 3"))]
    assert len({form.text for form in forms}) == 3
    first, second, third = (levels[2] for levels in shared_levels(forms))
    assert first == second != third


WORDS = st.sampled_from(
    "-n -e --x --x=1 - -- a ./a.py src/ $X \"$X\" *.py 'a b' -5 {} \\; -exec -name s/a/b/ 5,9p -pi <a >b 2>&1 | && ; & "
    "cat grep head ( ) [[ ]] find sed xargs timeout 60s sudo cd .. HEAD^".split()
)
COMMANDS = st.builds(
    lambda program, words: " ".join([program, *words]),
    st.sampled_from([*sorted(programs.SPECS), *sorted(programs.AS_WRITTEN), "./x", "xyz", "$X"]),
    st.lists(WORDS, max_size=7),
)


@cases(300)
@given(COMMANDS, COMMANDS)
def test_any_words_have_a_form_and_comparing_them_has_no_direction(one: str, other: str) -> None:
    a, b = act(one), act(other)
    equal = [same(a, b, level) for level in LEVELS]
    assert equal == sorted(equal) == [same(b, a, level) for level in LEVELS]
    assert close(a, b) == close(b, a)
    assert same_aim(a, b) == same_aim(b, a)
