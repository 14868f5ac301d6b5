"""The lexer reads words as a real shell does, and different effects never share a form."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.shell import MAX_CHARS, MAX_DEPTH, Simple, Unparsable, parse_shell
from composer_hub.actions.shell_form import ShellForm, argv_text, shell_form
from composer_hub.records import canonical_json
from tests.quick import cases

stable = cases(150)
slow = cases(40)

REPO = "/repo"


def form(text: str, *, cwd: str = REPO, keeps_cwd: bool = True) -> ShellForm:
    return shell_form(text, base=REPO, cwd=cwd, keeps_cwd=keeps_cwd)


def value(text: str, **options: object) -> str:
    return canonical_json(form(text, **options).value)  # type: ignore[arg-type]


SAME = [
    ("git  status", "git status"),
    ("git status;", "git status"),
    ("git status # look", "git status"),
    ("git \\\n  status", "git status"),
    ("echo 'a b'", 'echo "a b"'),
    ("echo a\\ b", "echo 'a b'"),
    ("echo a''b", "echo ab"),
    ('echo "${HOME}"', 'echo "$HOME"'),
    ("echo `date`", "echo $(date)"),
    ("a\nb", "a; b"),
    ("a && \n b", "a && b"),
    ("> out.txt echo hi", "echo hi > out.txt"),
    ("echo hi 1>out.txt", "echo hi >./out.txt"),
    ("cat <<EOF\nx\nEOF", "cat <<'END'\nx\nEND"),
    ("cat <<-EOF\n\tx\n\tEOF", "cat <<EOF\nx\nEOF"),
    ("ls -la", "ls -al"),
    ("ls -la", "ls -l -a ."),
    ("rm -rf build", "rm -r -f ./build"),
    ("rm -rf build", "rm --force --recursive /repo/build"),
    ("rm -- -x", "rm ./-x"),
    ("head -5 a.py", "head -n 5 ./a.py"),
    ("head -n5 a.py", "head --lines=5 a.py"),
    ("head a.py", "head -n 10 a.py"),
    ("grep -rn foo src lib", "grep -n -r 'foo' lib ./src"),
    ("grep foo src -n", "grep -n foo src"),
    ("grep -e foo a", "grep --regexp=foo /repo/a"),
    ("rg -n foo -A3 src", "rg -A 3 -n foo src"),
    ("pytest -xvs tests/a.py::t", "pytest -v -x -s ./tests/a.py::t"),
    ("python -m pytest -q tests", "python -m pytest ./tests -q"),
    ("python run.py --fast", "python /repo/run.py --fast"),
    ("/repo/run.sh a", "./run.sh a"),
    ("cd /repo && make", "make"),
    ("cd . && make", "make"),
    ("cd /repo; make", "make"),
    ("cd pkg && cat a.py", "cd /repo/pkg && cat /repo/pkg/a.py"),
    ("find ./src -name '*.py'", 'find src -name "*.py"'),
    ("cat src/*.py", "cat /repo/src/*.py"),
    ("cat src//a.py", "cat src/./a.py"),
    ("cat ../lib/a.py", "cat /lib/a.py"),
    ("git commit -am 'x'", "git commit -a -m x"),
    ("git commit -m \"$(cat <<'EOF'\nfix: it's done\n\nby me\nEOF\n)\"", 'git commit -m "fix: it\'s done\n\nby me"'),
    ("git add ./a.py", "git add a.py"),
    ("git add -A", "git add ."),
    ("sed -n '1,5p' a.py", "sed -n 1,5p ./a.py"),
    ("git diff HEAD~1", "git diff 'HEAD~1'"),
    ("for f in *.py; do wc -l $f; done", "for f in *.py\ndo\n  wc --lines $f\ndone"),
    ("if [ -f a ]; then cat a; fi", "if [ -f a ]\nthen cat ./a\nfi"),
    ("while read l; do echo $l; done < a", "while read l\ndo echo $l\ndone <./a"),
    ("curl -s -X GET localhost", "curl localhost --silent"),
    ("make -j4 all", "make -j 4 all"),
    ("cp -R a b", "cp -r a b"),
    ("A=1 B=2 run", "B=2 A=1 run"),
    ("npm i", "npm install"),
    ("[ -f a ] && ls", "test -f a && ls"),
    ("{ ls; pwd; }", "ls; pwd"),
    ("git -c core.pager=cat diff", "git --no-pager diff"),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=[f"{a!r} = {b!r}" for a, b in SAME])
def test_spellings_of_one_effect_have_one_form(one: str, other: str) -> None:
    assert value(one) == value(other)
    assert (form(one).kind, form(one).targets) == (form(other).kind, form(other).targets)


DIFFERENT = [
    ("rm -rf ./build", "rm -r f/build"),
    ("rm -rf build", "rm -rf build/"),
    ("rm -rf build", "rm -r build"),
    ("rm -rf build", "rm -rf /build"),
    ("git diff HEAD^", "git diff HEAD"),
    ("git diff HEAD~1", "git diff HEAD1"),
    ('a "b c"', "a b c"),
    ("a b", "ab"),
    ("a ''", "a"),
    ("echo hi > x", "echo hi >> x"),
    ("echo hi > x", "echo hi > y"),
    ("echo hi > x", "echo hi 2> x"),
    ("echo 2> x", "echo 2 > x"),
    ("make > x 2>&1", "make 2>&1 > x"),
    ("make >&2", "make > 2"),
    ("cat < x", "cat > x"),
    ("rm *", "rm '*'"),
    ("rm *", "rm ./*"),
    ("rm a*", "rm 'a'\\*"),
    ("rm ?", "rm \\?"),
    ("rm [ab]", "rm '[ab]'"),
    ('rm [a"-"z]', "rm [a-z]"),
    ("rm {a,b}", "rm '{a,b}'"),
    ('rm {a,b","c}', "rm {a,b,c}"),
    ("ls ~", "ls '~'"),
    ("ls ~", 'ls ~""'),
    ("echo '$X'", 'echo "$X"'),
    ('echo "$X"', "echo $X"),
    ("echo $X", "echo \\$X"),
    ('echo $X""', "echo $X"),
    ("echo ${X:-a}", "echo ${X:-b}"),
    ("echo $X$Y", "echo $XY"),
    ("echo $(a)", "echo '$(a)'"),
    ('echo "$(a)"', "echo $(a)"),
    ("echo $(a)", "echo $(b)"),
    ("echo $((1+1))", "echo $((1+2))"),
    ("a && b", "a ; b"),
    ("a && b", "a || b"),
    ("a & b", "a ; b"),
    ("a | b", "a || b"),
    ("a | b", "a |& b"),
    ("a && b && c", "a && c && b"),
    ("a && b || c", "a || b && c"),
    ("! a", "a"),
    ("(a; b) | c", "a; b | c"),
    ("(cd x && a)", "cd x && a"),
    ("{ a; b; } > x", "a; b > x"),
    ("a", "a &"),
    ("head -n 1 a", "head -n 2 a"),
    ("head -n 1 a", "head -c 1 a"),
    ("head -n 1 a", "cat -n 1 a"),
    ("tail -n 5 a", "tail -n +5 a"),
    ("head -n -5 a", "head -n 5 a"),
    ("head a", "head -n 11 a"),
    ("sed -in s/a/b/ x", "sed -ni s/a/b/ x"),
    ("sed -i '' 's/./x/' a", "sed -i '' 's/x/' a"),
    ("sed 's/./x/' a", "sed 's/x/' a"),
    ("grep ./a b", "grep a b"),
    ("grep a b", "grep b a"),
    ("grep -h -H a b", "grep -H -h a b"),
    ("grep -e a -e b c", "grep -e a b c"),
    ("grep -A 1 -B 2 x", "grep -A 2 -B 1 x"),
    ("cp a b", "cp b a"),
    ("cp -r a/. b", "cp -r a b"),
    ("cp a b/", "cp a b"),
    ("ls a -l", "ls -- a -l"),
    ("cat a/../b", "cat b"),
    ("cat ./-", "cat -"),
    ("git add :/", "git add ./:/"),
    ("cd pkg && git add -A", "cd pkg && git add ."),
    ("git add -A a", "git add . a"),
    ("A=1 make", "make"),
    ("A=1 make", "A=2 make"),
    ("A=1 make", "make A=1"),
    ("A=1 make", "'A=1' make"),
    ("A=1 B=$A make", "B=$A A=1 make"),
    ("export A=1 && make", "A=1 make"),
    ("run.sh", "./run.sh"),
    ("python run.py", "python3 run.py"),
    ("python run.py ./a", "python run.py a"),
    ("python -c 'a'", "python -c 'b'"),
    ("cd pkg && make", "make"),
    ("cd pkg && make", "cd pkg; make"),
    ("cd pkg && make", "cd lib && make"),
    ("cd pkg; cat a", "cd pkg; cat /repo/pkg/a"),
    ("cd pkg || true; cat a", "cat a"),
    ("cd /repo || exit 1; make", "make"),
    ("cd x && cat ../a", "cat a"),
    ("find . -name '*.py'", "find . -name *.py"),
    ("find a b -name x", "find b a -name x"),
    ("find . -name x -delete", "find . -delete -name x"),
    ("cat <<EOF\nx\nEOF", "cat <<EOF\ny\nEOF"),
    ("cat <<EOF\n$x\nEOF", "cat <<'EOF'\n$x\nEOF"),
    ("cat <<'EOF' > a\nx\nEOF", "cat <<'EOF' > b\nx\nEOF"),
    ("cat <<EOF\nx\nEOF", "cat <<EOF\nx\n\nEOF"),
    ("for f in a; do rm $f; done", "for f in b; do rm $f; done"),
    ("for f in a; do rm $f; done", "for f in a; do rm $f; done &"),
    ("if a; then b; fi", "if a; then b; else c; fi"),
    ("curl -d a=1 localhost", "curl -X GET -d a=1 localhost"),
    ("A=1 A+=2 run", "A+=2 A=1 run"),
    ("A=1 B=$A run", "B=$A A=1 run"),
    ("{ ls; pwd; } | wc", "ls; pwd | wc"),
    ("{ ls; pwd; } && a", "ls; pwd && a"),
    ("pip install a b", "pip install b"),
    ("while a; do b; done", "until a; do b; done"),
    ("for f in *; do cd $f; cat a; done", "for f in *; do cd $f; cat /repo/a; done"),
    ("echo a # b", "echo 'a # b'"),
    ("echo a#b", "echo a #b"),
    ("timeout 5 make", "timeout 50 make"),
    ('echo "$(cat <<EOF\n$x\nEOF\n)"', "echo '$x'"),
    ("echo $(cat <<'EOF'\na  b\nEOF\n)", "echo 'a  b'"),
    ("echo 'a\\nb'", "echo 'anb'"),
    ('echo "a\\nb"', 'echo "anb"'),
    ("pytest -k 'a and b'", "pytest -k 'b and a'"),
    ("pytest tests::a", "pytest tests::b"),
    ("git commit -m a -m b", "git commit -m b -m a"),
    ("git log -5", "git log -n 6"),
    ("tee a", "tee -a a"),
    ("rm -rf $X", 'rm -rf "$X"'),
    ("chmod -x f", "chmod +x f"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=[f"{a!r} ≠ {b!r}" for a, b in DIFFERENT])
def test_different_effects_have_different_forms(one: str, other: str) -> None:
    assert value(one) != value(other)


def test_a_relative_path_is_not_resolved_after_a_possible_cd() -> None:
    assert value("cat a.py", cwd="") != value("cat /repo/a.py", cwd="")
    assert value("cd /repo && make", cwd="") != value("make", cwd="")
    assert value("cat ./a.py", cwd="") == value("cat a.py", cwd="")


def test_a_cd_is_the_working_directory_of_a_shell_that_forgets_it() -> None:
    inside = shell_form("make test", base=REPO, cwd="/repo/pkg", keeps_cwd=False)
    assert canonical_json(inside.value) == value("cd pkg && make test", keeps_cwd=False)
    assert value("cd pkg && a || b", keeps_cwd=False) != value("cd pkg && (a || b)", keeps_cwd=False)


MEANT = [
    ("cat a.py | head -5", "read", ("a.py",)),
    ("cd pkg && sed -n 1,9p a.py", "read", ("pkg/a.py",)),
    ("grep -rn x src | wc -l", "search", ("src",)),
    ("grep -rn x", "search", (".",)),
    ("ls", "list", (".",)),
    ("find src -name x", "glob", ("src",)),
    ("find src -delete", "shell", (("find", "src"),)),
    ("cat > a.py <<'E'\nx\nE", "write", ("a.py",)),
    ("echo x >> a.py", "edit", ("a.py",)),
    ("sed -i s/a/b/ a.py", "edit", ("a.py",)),
    ("CI=1 timeout 60 pytest -x tests 2>&1 | tail -3", "shell", (("pytest", "tests"),)),
    ("git add -A && git commit -m x", "shell", (("git add", "."), ("git commit",))),
    ("sudo -u root make", "shell", (("make",),)),
    ("timeout -s KILL 60 make", "shell", (("make",),)),
    ("npm run test -- --watch", "shell", (("npm test",),)),
    ("npm run build -- --watch", "shell", (("npm run build",),)),
    ("echo hi", "shell", (("echo",),)),
    ("while true; do :; done", "shell", ((":",), ("true",))),
    ("for f in a b; do pytest $f; done > log", "shell", (("(", "log"), ("pytest",))),
    ("[[ a == b ]] && ls", "shell", ("[[",)),
]


@pytest.mark.parametrize(("text", "kind", "targets"), MEANT, ids=[text for text, _, _ in MEANT])
def test_a_command_has_the_kind_of_the_tool_it_replaces(text: str, kind: str, targets: tuple) -> None:
    assert (form(text).kind, form(text).targets) == (kind, targets)


@pytest.mark.parametrize(
    ("text", "moves", "read_only"),
    [
        ("ls && cat a", False, True),
        ("cd pkg && ls", True, True),
        ("(cd pkg && ls)", False, True),
        ("cd /repo && ls", False, True),
        ("if cd x; then ls; fi", True, True),
        ("for f in a b; do rm $f; done", False, False),
        ("for f in a b; do cd $f; cat x; done", True, True),
        ("echo a > b", False, False),
        ("ls > /dev/null 2>&1", False, True),
        ("sed -n 1p a", False, True),
        ("sed -i s/a/b/ a", False, False),
        ("make", False, False),
        ("git status", False, True),
        ("git checkout .", False, False),
    ],
)
def test_a_form_knows_whether_the_directory_and_files_may_have_changed(text: str, moves: bool, read_only: bool) -> None:
    assert (form(text).moves, form(text).read_only) == (moves, read_only)


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a", 'echo "a', "echo $(a", "echo ${a", "echo `a", "a &&", "| a", "a ;; b", "(a", "a )", "{ a",
        "f() { a; }", "a=(1 2)", "diff <(a) <(b)", "[[ a == b ]]", "cat <<EOF\nx", "cat <<EOF", "echo $'a'",
        "if a; then b", "if a; then; fi", "for f; do a; done", "for ((;;)); do a; done", "while a; done", "done",
        "case x in a) b;; esac", "if a; then b; fi c", "a; {", "ca\\\nt=1", "a || !",
        "$(" * (MAX_DEPTH + 1),
        "(" * 5000,
        "a" * (MAX_CHARS + 1),
    ],
    ids=lambda text: repr(text[:20]),
)  # fmt: skip
def test_a_text_that_is_not_read_with_certainty_is_its_own_form(text: str) -> None:
    with pytest.raises(Unparsable):
        parse_shell(text)
    assert shell_form(text).value == {"text": text}


# ----------------------------------------------------------------------------------------- against a real shell

WORD_CHARS = st.text(alphabet="ab c*?[]{}~$\"'\\`|&;()<>#=!\t\n%^-_./,:@+é", max_size=6)


@st.composite
def spelled(draw: st.DrawFn, text: str) -> str:
    """Spell a word in one of the ways a shell reads back as the same text."""
    pieces = []
    for char in text:
        style = draw(st.sampled_from(["'", '"', "\\", "plain"]))
        if style == "plain" and char.isalnum():
            pieces.append(char)
        elif style == "\\" and char != "\n":
            pieces.append("\\" + char)
        elif style == '"':
            pieces.append('"' + ("\\" + char if char in '$`"\\' else char) + '"')
        elif char == "'":
            pieces.append('"\'"')
        else:
            pieces.append(f"'{char}'")
    return "".join(pieces) or "''"


def words_of(text: str) -> list[str | None]:
    (item,) = parse_shell(text)
    command = item.pipelines[0].commands[0]
    assert isinstance(command, Simple)
    return [word.literal for word in command.words]


def words_in_sh(text: str) -> list[str]:
    sh = shutil.which("sh")
    if sh is None:
        pytest.skip("there is no sh on this machine")
    found = subprocess.run(
        [sh, "-c", f"printf '%s\\0' run {text}"], capture_output=True, check=True, cwd="/", stdin=subprocess.DEVNULL
    )
    return found.stdout.decode().split("\0")[:-1]


@stable
@given(st.lists(WORD_CHARS, min_size=1, max_size=4), st.data())
def test_quoting_never_changes_a_word(words: list[str], data: st.DataObject) -> None:
    text = " ".join(data.draw(spelled(word)) for word in words)
    assert words_of(f"run {text}") == ["run", *words]
    assert value(f"run {text}") == value("run " + argv_text(words))


@slow
@given(st.lists(WORD_CHARS, min_size=1, max_size=4), st.data())
def test_words_are_those_of_a_real_shell(words: list[str], data: st.DataObject) -> None:
    text = "  ".join(data.draw(spelled(word)) for word in words)
    assert words_of(f"run {text}") == words_in_sh(text)


@cases(100)
@given(st.text(alphabet="ab '\"\\#=-./,:@+%^!{}", max_size=14))
def test_any_literal_command_has_the_words_a_real_shell_gives_it(text: str) -> None:
    try:
        words = words_of(f"run {text}")
    except Unparsable:
        return
    if None not in words:
        assert words == words_in_sh(text)


@stable
@given(WORD_CHARS, WORD_CHARS)
def test_different_words_are_different_effects(one: str, other: str) -> None:
    for program in ("run", "cat", "grep", "grep x", "rm -r", "pytest", "sed -n", "python", "ls"):
        if one != other and not _one_file(one, other):
            assert value(f"{program} {argv_text([one])}") != value(f"{program} {argv_text([other])}")


def _one_file(one: str, other: str) -> bool:
    """Return whether a shell may read two words as one file or one option list."""

    def plain(text: str) -> list[str]:
        parts = text.split("::")[0].split("/")
        names = [part for part in parts if part not in ("", ".")]
        return [text[:1] == "/", names]  # type: ignore[list-item]

    options = one.startswith("-") or other.startswith("-") or not one or not other
    above = ".." in one or ".." in other
    return options or above or plain(one) == plain(other) or "::" in one + other


# ------------------------------------------------------------------------------------- against real effects

FILES = {"a": "1\n2\n3\n", "b": "2\nx y\n", "src/a": "a1\na2\n", "-n": "dash\n", "c d": "space\n", "1": "one\n"}
PROGRAMS = [
    "cat", "cat -n", "head -n 1", "head -1", "head -n1", "head -c 1", "head", "head -n 10", "tail -n 1",
    "tail -n +2", "rm", "rm -f", "rm -rf", "rm -r -f", "rm -fr", "cp -r src", "cp a", "mv b", "mkdir -p", "touch",
    "wc -l", "ls",
]  # fmt: skip
PROGRAMS += [
    "grep -h 2",
    "grep -h -v 2",
    "grep -hv 2",
    "grep -n 2",
    "sed -n 1p",
    "sed 1d",
    "echo",
    "echo hi >",
    "echo hi >>",
]
OPERANDS = [
    "a", "./a", "src/a", "./src//a", "src", "src/", "b", "'a'", "*", "'*'", "./*", "[ab]", "'[ab]'", "{a,b}", "-n",
    "./-n", "-- -n", "'c d'", "c\\ d", "c d", "$X", '"$X"', "'$X'", "~", "new", "./new", "{root}/a", "src/../a",
    "1",
]  # fmt: skip
JOINTS = [" && ", " ; ", " || ", " | ", " & wait; "]
LAYOUTS = ["{}"] * 8 + [
    "for f in a b; do {}; done", "for f in a b\ndo\n  {}\ndone", "if cat a; then {}; fi", "if cat ./a\nthen {}\nfi",
    "for f in a b; do cat $f; {}; done | cat", "for f in a b; do cat $f\n{}; done|cat", "while false; do {}; done",
]  # fmt: skip
PREFIXES = ["", "", "", "cd src && ", "cd . && ", "cd {root} && ", "cd src; ", "X=a; ", "! ", "(cd src) && "]


def scripts(num: int, root: Path) -> list[str]:
    """Return different small scripts, always the same ones."""
    rng = random.Random(0)
    found: dict[str, None] = {}
    while len(found) < num:
        commands = [f"{rng.choice(PROGRAMS)} {rng.choice(OPERANDS)}" for _ in range(rng.choice([1, 1, 2]))]
        text = rng.choice(PREFIXES) + rng.choice(LAYOUTS).replace("{}", rng.choice(JOINTS).join(commands))
        found[text.replace("{root}", str(root))] = None
    return list(found)


def effect_of(text: str, root: Path) -> tuple[int, str, dict[str, str]]:
    """Run a script among the test's own files; return exit code, output and the files it leaves."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash on this machine")
    shutil.rmtree(root, ignore_errors=True)
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    environment = {"PATH": os.environ["PATH"], "HOME": str(root / "src"), "X": "a b", "LC_ALL": "C"}
    done = subprocess.run(
        [bash, "--norc", "-c", text],
        cwd=root,
        env=environment,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    left = {str(path.relative_to(root)): path.read_text() for path in sorted(root.rglob("*")) if path.is_file()}
    # Two spellings of a path are printed as they were given.
    output = done.stdout.replace(f"{root}/", "").replace("//", "/").replace("./", "")
    return done.returncode, output, left


def test_commands_of_one_form_leave_the_same_files_and_output(tmp_path: Path) -> None:
    root = tmp_path / "root"
    by_form: dict[str, list[str]] = {}
    for text in scripts(1500, root):
        found = canonical_json(shell_form(text, base=str(root), cwd=str(root)).value)
        by_form.setdefault(found, []).append(text)
    shared = [texts for texts in by_form.values() if len(texts) > 1]
    assert len(shared) > 40
    for texts in shared:
        effects = [effect_of(text, root) for text in texts]
        assert effects == effects[:1] * len(effects), texts


SPELLINGS = [
    ("rm -rf {src}", ["src", "./src", "{root}/src", "'src'"]),
    ("cat {a} > {new}", ["a", "./a", "{root}/a", '"a"']),
    ("head -n 1 {a} && touch {new}", ["a", "{root}/./a"]),
    ("cp -r {src} {new}", ["src", "./src"]),
    ("grep -h -v 2 {a}", ["a", "./a", "{root}//a"]),
    ("cd {src} && cat a && cat ../b", ["src", "./src", "{root}/src"]),
]


@pytest.mark.parametrize(("template", "spellings"), SPELLINGS, ids=[one for one, _ in SPELLINGS])
def test_spellings_of_one_form_have_one_real_effect(template: str, spellings: list[str], tmp_path: Path) -> None:
    root = tmp_path / "root"
    texts = [
        re.sub(r"\{(src|a)\}", lambda _, one=spelling: one, template)
        .replace("{new}", "new")
        .replace("{root}", str(root))
        for spelling in spellings
    ]
    assert len({canonical_json(shell_form(text, base=str(root), cwd=str(root)).value) for text in texts}) == 1
    effects = [effect_of(text, root) for text in texts]
    assert effects == effects[:1] * len(effects)


ALIKE = [
    ("ls new a &> log", "ls new a > log 2>&1"),
    ("ls new a >& log", "ls new a > log 2>&1"),
    ("ls new a &>> a", "ls new a >> a 2>&1"),
    ("ls new a |& cat", "ls new a 2>&1 | cat"),
    ("{ ls new; ls a; } |& cat", "{ ls new; ls a; } 2>&1 | cat"),
    ("cat > new <<'E'\nx\nE", "cat <<'E' > new\nx\nE"),
    ("grep -rh 1 . --include=a*", "grep -rh --include='a*' 1 ."),
    ("grep -rh 1 src/", "grep -rh 1 src"),
    ("grep -rh 1", "grep -rh 1 ."),
    ("ls src/", "ls src"),
    ("mkdir -p new/deep/", "mkdir -p new/deep"),
    (
        "git init -q; git -C . add a b; git --no-pager status -s; rm -r .git",
        "git init -q; git add b a; git status -s; rm -r .git",
    ),
]


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_commands_that_are_alike_have_one_form_and_one_real_effect(one: str, other: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    assert value(one) == value(other)
    assert effect_of(one, root) == effect_of(other, root)


APART = [
    ("find . -name a -o -name b -type f", "find . -name b -type f -o -name a"),
    ("find . -delete -name a", "find . -name a -delete"),
    ("find . ! -name a -type f", "find . ! -type f -name a"),
    ("make 2>&1 > log", "make > log 2>&1"),
    ("cat < a > b", "cat > b < a"),
    ("cat <<'E' <<'F'\nx\nE\ny\nF", "cat <<'F' <<'E'\ny\nF\nx\nE"),
    ("grep x *.py", "grep x '*.py'"),
    ("git diff -- main", "git diff main"),
    ("git log -- main", "git log main"),
    ("git checkout -- a.py", "git checkout a.py"),
    ("git -C src status", "git status"),
    ("npm run install", "npm install"),
    ("yarn run add", "yarn add"),
    ("npm run build", "npm build"),
    ("cp -r a b/", "cp -r a b"),
    ("cat x | grep -r y", "cat x | grep -r y ."),
]


@pytest.mark.parametrize(("one", "other"), APART)
def test_commands_that_only_look_alike_have_two_forms(one: str, other: str) -> None:
    assert value(one) != value(other)


PATHS = st.lists(st.sampled_from(["a", "b.py", "src", "-x", "c d"]), min_size=1, max_size=3).map("/".join)


@stable
@given(st.sampled_from(["cat", "rm -rf", "ls -l", "grep foo", "wc -l", "head -n 3", "pytest -q"]), PATHS, st.data())
def test_one_file_spelled_in_many_ways_is_one_effect(program: str, path: str, data: st.DataObject) -> None:
    prefix = data.draw(st.sampled_from(["./", "/repo/", "././", "/repo/./", "../repo/", "/./repo//"]))
    spelling = data.draw(spelled(prefix + path))
    assert value(f"{program}  {spelling}") == value(f"{program} {argv_text(['./' + path])}")


@stable
@given(st.permutations(["-r", "-n", "-i", "-l"]), st.integers(1, 3))
def test_clusters_and_order_of_independent_flags_do_not_matter(flags: list[str], split: int) -> None:
    text = f"grep -{''.join(flag[1] for flag in flags[:split])} {' '.join(flags[split:])} foo src"
    assert value(text) == value("grep -i -l -n -r foo src")


@stable
@given(st.lists(st.sampled_from(["a", "cd x", "cd /repo", "b | c", "(d)", "e > f"]), min_size=1, max_size=4), st.data())
def test_another_operator_is_another_effect(commands: list[str], data: st.DataObject) -> None:
    operators = [data.draw(st.sampled_from([" && ", " || ", " ; ", " & "])) for _ in commands[1:]]
    others = [data.draw(st.sampled_from([" && ", " || ", " ; ", " & "])) for _ in commands[1:]]
    one, other = _joined(commands, operators), _joined(commands, others)
    if operators != others and "cd /repo" not in commands:
        assert value(one) != value(other)


def _joined(commands: list[str], operators: list[str]) -> str:
    return commands[0] + "".join(op + command for op, command in zip(operators, commands[1:], strict=True))


@stable
@given(st.text(alphabet="ab cd|&;()<>{}'\"\\$`\n*#=-/.~!1", max_size=40))
def test_any_text_has_a_form(text: str) -> None:
    first = form(text)
    assert canonical_json(first.value) == canonical_json(form(text).value)
    assert canonical_json(first.targets)
