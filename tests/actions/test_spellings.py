"""Other spellings of one command share a form; near neighbours, whose effect differs, do not."""

import pytest

from composer_hub.actions.shell_form import shell_form

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
