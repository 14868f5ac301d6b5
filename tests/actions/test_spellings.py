"""Other spellings of one command share a form; near neighbours, whose effect differs, do not."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_hub.actions import programs
from composer_hub.actions.forms import LEVELS, ActionContext, NormalForm, close, normalize, same, shared_levels
from composer_hub.actions.shell_form import shell_form
from composer_hub.records import Message, ToolCall

EQUAL = [
    ("git add a && git add b", "git add b a"),
    ("rm -rf build dist", "rm -r -f -- dist build"),
    ("pytest tests/b.py tests/a.py -q", "pytest -q tests/a.py tests/b.py"),
    ("cat a.log | grep -n x", "grep -n x < a.log"),
    ("cat a.log | sort | uniq", "sort -u a.log"),
    ("cat a.log | wc -l", "wc -l < a.log"),
    ("head -n 9 a.log", "sed -n 1,9p a.log"),
    ("env B=2 A=1 make", "A=1 B=2 make"),
    ("tar xzf a.tgz -C out", "tar -xz --directory=out --file a.tgz"),
    ("kill -9 7", "kill -s SIGKILL 7"),
    ("kill 7", "kill -15 7"),
    ("git stash -u", "git stash push --include-untracked"),
    ("git checkout -- a.py", "git restore a.py"),
    ("chmod 755 a", "chmod u=rwx,go=rx a"),
    ("sed -i 's|a|b|g' x", "sed -i s/a/b/g x"),
    ("go test -v -run T ./x", "go test ./x -run=T -v"),
]
APART = [
    ("false || git add a && git add b", "false || git add a b"),
    ("mkdir a a/b", "mkdir a/b a"),
    ("pytest -x b.py a.py", "pytest -x a.py b.py"),
    ("cat a | grep -H x", "grep -H x a"),
    ("wc -l < a", "wc -l a"),
    ("grep x < a > b", "grep x a > b"),
    ("cat a | tail -f", "tail -f a"),
    ("sort -n a | uniq", "sort -nu a"),
    ("sort -k2 a | uniq", "sort -u -k2 a"),
    ("sed -n 2,9p a", "head -n 9 a"),
    ("sed -n 1,9p a b", "head -n 9 a b"),
    ("sed 's|a/b|c|' x", "sed s/a/b/c/ x"),
    ("kill -0 7", "kill 7"),
    ("git stash pop", "git stash push"),
    ("git checkout main", "git checkout -- main"),
    ("cargo test a -- b", "cargo test a b"),
    ("env -i A=1 make", "A=1 make"),
    ("env A=$B make", "A=$B make"),
    ("chmod u=rwx a", "chmod 700 a"),
    ("ln -s a b", "ln -s b a"),
    ("tar xfC a.tgz out", "tar -xfC a.tgz out"),
    ("sed -n '1,5p' -i", "head -n 5 -i"),
]


def value(text: str) -> object:
    return shell_form(text, base="/repo", cwd="/repo").value


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_spellings_of_one_command_share_a_form(one: str, other: str) -> None:
    assert value(one) == value(other)


@pytest.mark.parametrize(("one", "other"), APART)
def test_neighbours_with_another_effect_stay_apart(one: str, other: str) -> None:
    assert value(one) != value(other)


def act(*calls: Any) -> NormalForm:
    """Return the form of calls; a text is a command of the shell."""
    named = [("Bash", {"command": call}) if isinstance(call, str) else call for call in calls]
    made = tuple(ToolCall(name, own, str(at)) for at, (name, own) in enumerate(named))
    return normalize(Message("assistant", "", made), ActionContext(cwd="/repo", shell_cwd="/repo"))


def edit(old: str, new: str, **options: Any) -> tuple[str, dict[str, Any]]:
    return "Edit", {"file_path": "a.py", "old_string": old, "new_string": new, **options}


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@ {}\n-x = 1\n+x = 2\n*** End Patch"
ONE_INTENTION = [
    (["python train.py --lr 0.1 d.csv"], ["python ./train.py d.csv --lr=0.1"]),
    (["xyz --a 1 --b 2"], ["xyz --b=2 --a=1"]),
    (["python - <<'EOF'\nprint('a')  # b\nEOF"], ["python -c 'print(\"a\")'"]),
    (["npm --prefix web test"], ["cd web && npm run test"]),
    (["git reset HEAD a.py"], ["git restore --staged a.py"]),
    (["git diff HEAD^ --stat"], ["git diff --stat HEAD~1"]),
    (["grep -rn 'a\\|b' src"], ["rg -e b -e a src"]),
    (["grep foo a.py | wc -l"], ["grep -c foo a.py"]),
    (["find . -name '*.o' -delete"], ["find . -name '*.o' | xargs rm -f"]),
    (["pip install -q b a"], ["python -m pip install a b"]),
    (["kubectl get po -n web"], ["kubectl -n web get pods"]),
    (["tar xvzf a.tgz"], ["tar -xf a.tgz"]),
    (["git status && git diff"], ["git diff", "git status"]),
    (["nl -ba a.py | sed -n 5,9p"], [("Read", {"file_path": "/repo/a.py", "offset": 5, "limit": 5})]),
    (["cat a.py b.py"], [("Read", {"file_path": "b.py"}), ("Read", {"file_path": "a.py"})]),
    (["grep -rn x --include='*.py' ."], [("Grep", {"pattern": "x", "type": "py", "output_mode": "content"})]),
    (["find src -name '*.py'"], [("Glob", {"pattern": "src/**/*.py"})]),
    (["cat > a.py <<'EOF'\nx\nEOF"], [("Write", {"file_path": "a.py", "content": "x\n"})]),
    (["rm a.py"], [("delete_file", {"target_file": "/repo/a.py"})]),
    (["sed -i 's|x = 1|x = 2|' a.py"], [edit("x = 1", "x = 2")]),
    ([edit("x = 1", "x = 2")], [edit("def f():\n    x = 1\n", "def f():\n    x = 2\n")]),
    ([edit("x = 1\ny = 1\n", "x = 2\ny = 2\n")], [edit("y = 1", "y = 2"), edit("x = 1", "x = 2")]),
    ([edit("f\nx = 1\n", "f\nx = 2\n")], [("apply_patch", {"input": PATCH.format("")})]),
]
TWO_INTENTIONS = [
    (["python train.py a b"], ["python train.py b a"]),
    (["docker run a --rm"], ["docker run --rm a"]),
    (["rg -F a.b"], ["rg a.b"]),
    (["test -f a && cat a"], ["test -f a; cat a"]),
    (["curl -X GET -d a=1 http://l"], ["curl -d a=1 http://l"]),
    (["rsync -a src/ dst"], ["rsync -a src dst"]),
    ([edit("x", "y", replace_all=True)], [edit("x", "y")]),
    ([edit("def f():\n    x = 1", "def f():\n    x = 2")], [edit("def g():\n    x = 1", "def g():\n    x = 2")]),
    ([("apply_patch", {"input": PATCH.format("def f():")})], [("apply_patch", {"input": PATCH.format("def g():")})]),
    (["sed -i s/x/y/ a.py"], ["sed -i.bak s/x/y/ a.py"]),
    (["sleep 9 &"], ["sleep 9"]),
]


@pytest.mark.parametrize(("one", "other"), ONE_INTENTION)
def test_one_intention_is_one_action_in_every_spelling(one: list[Any], other: list[Any]) -> None:
    assert same(act(*one), act(*other))
    assert close(act(*one), act(*other))


def test_forms_that_are_the_same_get_one_text() -> None:
    forms = [act(edit("x = 1", "x = 2")), act(edit("f\nx = 1", "f\nx = 2")), act(edit("x = 1", "x = 3"))]
    assert len({form.text for form in forms}) == 3
    first, second, third = (levels[2] for levels in shared_levels(forms))
    assert first == second != third


@pytest.mark.parametrize(("one", "other"), TWO_INTENTIONS)
def test_two_intentions_are_two_actions(one: list[Any], other: list[Any]) -> None:
    assert not same(act(*one), act(*other))


WORDS = st.sampled_from(
    "-n -e --x --x=1 - -- a ./a.py src/ $X \"$X\" *.py 'a b' -5 {} \\; -exec -name s/a/b/ 5,9p -pi <a >b 2>&1 | && ; & "
    "cat grep head ( ) [[ ]] find sed xargs timeout 60s sudo cd .. HEAD^".split()
)
COMMANDS = st.builds(
    lambda program, words: " ".join([program, *words]),
    st.sampled_from([*sorted(programs.SPECS), *sorted(programs.AS_WRITTEN), "./x", "xyz", "$X"]),
    st.lists(WORDS, max_size=7),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(COMMANDS, COMMANDS)
def test_any_words_have_a_form_and_comparing_them_has_no_direction(one: str, other: str) -> None:
    a, b = act(one), act(other)
    equal = [same(a, b, level) for level in LEVELS]
    assert equal == sorted(equal) == [same(b, a, level) for level in LEVELS]
    assert close(a, b) == close(b, a)
