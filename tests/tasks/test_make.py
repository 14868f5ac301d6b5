"""Tasks of a toy package: every kind, exact lists, hidden oracles, leaks, and the same rows for the same seed."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits, hub, tasks
from composer_hub.cli.main import root
from composer_hub.cli.options import Publication
from composer_hub.cli.task_exports import publish
from composer_hub.environments.harbor import world_of
from composer_hub.environments.sandbox import open_sandbox
from composer_hub.environments.trees import bundle_files, edited
from composer_hub.environments.verifier import submission, verify
from composer_hub.output import Output
from composer_hub.records import SourceEdit, Task
from composer_hub.tasks.baseline import Baseline
from composer_hub.tasks.code import Splice, apply
from composer_hub.tasks.deletion import Candidate, PackageModel
from composer_hub.tasks.gates import num_functions
from composer_hub.tasks.harbor import HarborTreeError, check_tree, tree_of
from composer_hub.tasks.inside.composer_jobs import reason
from composer_hub.tasks.javascript import JavaScript
from composer_hub.tasks.language import pack
from composer_hub.tasks.metadata import read_metadata
from composer_hub.tasks.packages import GENERATORS
from composer_hub.tasks.python import Python
from composer_hub.tasks.removal import removals
from composer_hub.tasks.sources import open_package
from composer_hub.tasks.statement import statements
from tests.figures import only_people_read
from tests.tasks import toy


@pytest.fixture(scope="session")
def bundle(made: tasks.TaskSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "toy.tar.gz"
    path.write_bytes(made.bundles[0].data)
    return path


def test_every_number_about_a_package_is_in_the_json_of_make(
    made: tasks.TaskSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publication = Publication(str(tmp_path), "me/tasks", dry_run=True, kind="tasks")
    publish(Output("json"), publication, made)
    printed = capsys.readouterr().out
    for report in made.reports:
        assert not only_people_read(report.line(), printed)


@pytest.mark.parametrize("kinds", ["", " , ", "stubs"])
def test_kinds_that_name_none_are_refused_before_a_package_is_read(kinds: str, tmp_path: Path) -> None:
    words = ["tasks", "make", "nowhere", "--repo", "me/tasks", "--to", str(tmp_path), "--kinds", kinds]
    with pytest.raises(exits.UsageError, match=r"(no|No) kind.*The kinds are stub, .*commit\."):
        root.main(words, standalone_mode=False)


FEW = tasks.TaskOptions(kinds=("stub", "bug", "branch"), max_per_kind=2, recheck_every=0, workers=1)


@pytest.fixture(scope="module")
def few(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> tasks.TaskSet:
    """Return tasks as one worker makes them in the strongest sandbox of this machine."""
    return tasks.make([str(toy.write(tmp_path_factory.mktemp("few") / "toy"))], FEW)


def one_task(made: tasks.TaskSet, kind: str) -> Task:
    return next(task for task in made.tasks if task.kind == kind)


def oracle_of(made: tasks.TaskSet, task: Task) -> Mapping[str, Any] | None:
    return made.oracles.get(task.task_id)


def test_every_kind_of_edit_has_a_generator() -> None:
    assert {*GENERATORS, "write_tests", "commit"} == set(tasks.KINDS)


@pytest.mark.parametrize("kind", tasks.TaskOptions().kinds)
def test_the_verifier_rewards_the_solution_of_every_kind_and_not_the_start(
    kind: str, made: tasks.TaskSet, bundle: Path, venv: Path
) -> None:
    task = one_task(made, kind)
    done = tasks.check_task(task, bundle, venv, oracle_of(made, task), open_sandbox())
    assert done.ok, done


def test_two_full_runs_find_the_same_lists(made: tasks.TaskSet) -> None:
    (report, _) = made.reports
    assert sum(report.rechecked.values()) >= 2
    assert {outcome.split(":")[1] for outcome in report.rechecked} == {"exact"}


def test_a_test_that_starts_a_process_and_tests_of_a_shared_fixture_are_in_the_lists(made: tasks.TaskSet) -> None:
    failing = {symbol: task.fail_to_pass for task in made.tasks if task.kind == "stub" for symbol in task.symbols}
    assert set(failing) <= {
        "tinytext.words:slug", "tinytext.words:title", "tinytext.words:shout", "tinytext.words:_clean",
        "tinytext.spans:seconds", "tinytext.spans:Clock.move", "tinytext.boxes:box",
    }  # fmt: skip
    needed = {
        "tinytext.words:title": "tests/test_words.py::test_in_a_process",
        "tinytext.words:shout": "tests/test_words.py::test_shout_again",
        "tinytext.spans:seconds": "tests/test_spans.py::test_noon_is_later",
    }
    shown = [(symbol, test) for symbol, test in needed.items() if symbol in failing]
    assert shown
    assert all(test in failing[symbol] for symbol, test in shown)


def test_a_source_that_gives_nothing_is_counted_and_the_others_continue(made: tasks.TaskSet) -> None:
    assert [report.refused for report in made.reports] == ["", "not_found"]
    assert "Check the spelling" in made.reports[1].sentence


def test_a_file_that_quotes_the_solution_is_taken_from_the_agent(made: tasks.TaskSet) -> None:
    quoting = [
        task for task in made.tasks if "tinytext.spans:seconds" in task.symbols and task.kind in ("stub", "removal")
    ]
    assert all(SourceEdit("README.md", None) in task.edits for task in quoting)
    others = [task for task in made.tasks if task.symbols == ("tinytext.words:title",)]
    assert all(SourceEdit("README.md", None) not in task.edits for task in others)


def test_code_that_differs_where_no_test_looks_is_stopped_by_the_oracle(
    made: tasks.TaskSet, bundle: Path, venv: Path
) -> None:
    task = next(
        task for task in made.tasks if task.has_oracle and task.kind in ("stub", "cluster", "removal", "branch")
    )
    oracle = oracle_of(made, task)
    assert oracle is not None
    assert oracle["num_unseen"] > 0
    gold = edited(edited(bundle_files(bundle), task.edits), task.solution)
    spoiled = {**gold, "tinytext/words.py": gold["tinytext/words.py"].replace(b'"!"', b'"?"')}
    spoiled["tinytext/words.py"] = spoiled["tinytext/words.py"].replace(b".lower()", b".casefold()[::-1]")
    spoiled["tinytext/spans.py"] = gold["tinytext/spans.py"].replace(b'"m": 60', b'"m": 61')
    honest = verify(task, submission(task, gold), bundle, open_sandbox(), venv=venv, oracle=oracle)
    assert honest.reward == 1
    tests_only = dataclasses.replace(task, fail_to_pass=("tests/test_spans.py::test_other_units",), pass_to_pass=())
    caught = verify(tests_only, submission(task, spoiled), bundle, open_sandbox(), venv=venv, oracle=oracle)
    assert (caught.visible, caught.oracle_ok, caught.reward) == (1.0, False, 0.0)


def test_methods_are_asked_with_the_calls_that_their_object_saw(made: tasks.TaskSet) -> None:
    calls = [call for oracle in made.oracles.values() for call in oracle.get("calls", ())]
    histories = [call["steps"] for call in calls if call["target"] == "tinytext.spans:Clock"]
    assert histories
    assert all(step[0] == "move" for steps in histories for step in steps)


def test_statements_say_more_with_more_help(made: tasks.TaskSet) -> None:
    task = one_task(made, "stub")
    least, more, most = task.statements
    assert task.statement == more
    assert task.fail_to_pass[0] in least
    assert task.symbols[0].split(":")[1] in more
    assert "def test_" in most
    assert "NotImplementedError" not in most


def test_a_feature_spans_files_and_a_statement_says_what_is_known_of_it(made: tasks.TaskSet) -> None:
    task = one_task(made, "feature")
    assert set(task.symbols) == {"tinytext.boxes:box", "tinytext.lines:wrapped"}
    assert {edit.path for edit in task.solution} == {"tinytext/boxes.py", "tinytext/lines.py"}
    assert (task.num_files, task.num_lines >= 15) == (2, True)
    assert "It raises `ValueError`." in task.statement
    assert "assert tinytext.boxes.box('a b') == ['+---+', '|a b|', '+---+']" in task.statement


def test_a_statement_shows_a_method_in_its_class_and_the_cases_of_a_test_once(tmp_path: Path) -> None:
    empty: frozenset[str] = frozenset()
    failing = [*(f"tests/test_it.py::test_many[{number}]" for number in range(40)), "tests/test_it.py::test_one"]
    package = open_package(str(toy.write(tmp_path / "toy")), tmp_path / "work")
    model = PackageModel(package, Baseline(empty, empty, empty, 0, {}, {}, {}, {}, empty, empty, 0.0))
    _, more, _ = statements(model, Candidate("stub", "", ("tinytext.spans:Clock.move",), (), empty, 1), failing)
    assert "class Clock:\n    def move(self, text):" in more
    assert "- `tests/test_it.py::test_many` (40 cases)\n- `tests/test_it.py::test_one`\n" in more


def test_a_statement_tells_facts_of_the_definition_and_not_of_another_of_its_name(tmp_path: Path) -> None:
    made = {
        "pyproject.toml": '[project]\nname = "days"\ndynamic = ["version"]\n',
        "days/__init__.py": "__version__ = '2.1'\nfrom .make import date\n",
        "days/make.py": "def date(a):\n    raise ValueError(a)\n\n@checked\ndef day(a):\n    raise ValueError(1)\n",
        "days/uses.py": "from . import date\ndef mine(): return date('x')\n",
        "days/other.py": "from datetime import date\ndef theirs(): return date(2020, 1, 1)\n",
        "tests/test_days.py": """
import datetime, pytest
from datetime import date
from days import date as made

@pytest.mark.parametrize("text, year", [("2020-01-02", 2020), ("1999-01-02", 1999)])
def test_year(text, year):
    assert made(text).year == year

def test_other(monkeypatch):
    later = made("2020-01-01")
    assert later.day == made("2020-01-02")
    assert date(2018, 7, 22)

def test_error():
    text = "no"
    with pytest.raises(ValueError):
        made(text)
""",
    }
    for path, text in made.items():
        (tmp_path / "days" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "days" / path).write_text(text)
    empty: frozenset[str] = frozenset()
    package = open_package(str(tmp_path / "days"), tmp_path / "work")
    model = PackageModel(package, Baseline(empty, empty, empty, 0, {}, {}, {}, {}, empty, empty, 0.0))
    failing = [f"tests/test_days.py::test_{name}" for name in ("other", "year[2020-01-02-2020]", "error")]
    candidate = Candidate("feature", "", ("days.make:date", "days.make:day"), (), empty, 1)
    _, more, _ = statements(model, candidate, failing)
    assert "`days` 2.1" in more
    assert "with the definition below" in more
    assert more.count("It raises `ValueError`.") == 1, "a decorator may return the error"
    assert "`mine` of `days.uses` uses it." in more
    examples = more.partition("Its tests assert, for example:\n\n```python\n")[2].partition("\n```")[0]
    assert examples.splitlines() == [
        "with pytest.raises(ValueError):",
        "    made('no')",
        "assert made('2020-01-02').year == 2020",
        "assert made('1999-01-02').year == 1999",
    ]


@pytest.mark.parametrize(
    ("test", "shown"),
    [
        ("def test_it():\n    assert f(1) == 2", ["assert f(1) == 2"]),
        ("@parametrize('a, b', [(1, 2), param(3, 4, id='x')])\ndef test_it(a, b):\n    assert f(a) == b",
         ["assert f(1) == 2", "assert f(3) == 4"]),
        ("@parametrize('a', [1], indirect=True)\ndef test_it(a):\n    assert f(a) == 1", []),
        ("@parametrize('a, b', [param(1, 2, marks=xfail)])\ndef test_it(a, b):\n    assert f(a) == b", []),
        ("CASES = [1]\nCASES = [5]\n@parametrize('a', CASES)\ndef test_it(a):\n    assert f(a) == 6", []),
        ("@parametrize('a', [[3, 1]])\ndef test_it(a):\n    a.sort()\n    assert f(a) == [1, 3]", []),
        ("def test_it(x):\n    assert f(x) == 1", []),
        ("def test_it():\n    x = 1\n    assert f(x) == 2\n    x = 3\n    assert f(x) == 4", []),
        ("@parametrize('n', [3])\ndef test_it(n):\n    assert f(lambda n: n + 1)(n) == 4", []),
        ("def test_it():\n    from other import f\n    assert f(1) == 99", []),
        ("def test_it():\n    if WINDOWS:\n        assert f(1) == 2", []),
        ("def test_it(monkeypatch):\n    monkeypatch.setenv('A', 'b')\n    assert f(1) == 2", []),
        ("def helper(x): return x\ndef test_it():\n    assert f(helper(1)) == 2", []),
        ("def test_it():\n    x = 'a'\n    assert f(f'{x}') == 2", []),
    ],
)  # fmt: skip
def test_an_example_holds_without_the_test_that_it_is_from(test: str, shown: list[str], tmp_path: Path) -> None:
    code, head = "def f(x):\n    return x + 1\n", "from pytest import param\nfrom tinytext.f import f\n\n"
    source = toy.write(tmp_path / "toy", **{"tinytext/f.py": code, "tests/test_f.py": f"{head}{test}\n"})
    empty: frozenset[str] = frozenset()
    model = PackageModel(open_package(str(source), tmp_path / "work"),
                  Baseline(empty, empty, empty, 0, {}, {}, {}, {}, empty, empty, 0.0))  # fmt: skip
    _, more, _ = statements(model, Candidate("stub", "", ("tinytext.f:f",), (), empty, 1), ["tests/test_f.py::test_it"])
    found = more.partition("for example:\n\n```python\n")[2].partition("\n```")[0]
    assert found.splitlines() == shown


def test_facts_are_those_of_a_caller(tmp_path: Path) -> None:
    code = """
import contextlib

class Cache:
    def get(self, key): return key

def config(options): return options.get("a")

@contextlib.contextmanager
def opened(): yield 1

def quiet(x):
    try:
        raise KeyError(x)
    except KeyError:
        return None
"""
    source = toy.write(tmp_path / "toy", **{"tinytext/facts.py": code})
    empty: frozenset[str] = frozenset()
    model = PackageModel(open_package(str(source), tmp_path / "work"),
                  Baseline(empty, empty, empty, 0, {}, {}, {}, {}, empty, empty, 0.0))  # fmt: skip
    symbols = tuple(f"tinytext.facts:{name}" for name in ("Cache.get", "opened", "quiet"))
    _, more, _ = statements(model, Candidate("stub", "", symbols, (), empty, 1), ["tests/test_words.py::test_title"])
    assert not any(word in more for word in ("use it", "uses it", "It raises", "generator")), more


def test_a_removal_that_no_statement_can_name_is_not_made(tmp_path: Path) -> None:
    code = "def f(): return 1\n\n\ndef g(): return 2\n\n\nregister(f)\nx = g(); KEEP = 1\n"
    package = open_package(str(toy.write(tmp_path / "toy", **{"tinytext/more.py": code})), tmp_path / "work")
    some, test = frozenset[str](), frozenset({"tests/test_words.py::test_title"})
    lines = {"tinytext/more.py": dict.fromkeys((1, 4), test)}
    baseline = Baseline(test, some, some, 0, {}, {}, lines, {}, some, some, 0.0)
    assert not list(removals(PackageModel(package, baseline), random.Random(1)))


def test_a_message_that_names_a_machine_is_not_quoted() -> None:
    tree = "/tmp/bench/lane-0/tree"
    assert reason(f"{tree}/a.py: bad value", tree) == "a.py: bad value"
    assert reason("bad \udcff \x1b[1m", tree) == "bad \\udcff \\u001b[1m"
    for own in (
        f"cwd is {tree}",
        "/tmp/bench/lane-0/home",
        sys.prefix,
        "<A at 0x7f12d>",
        "id 139828154148240",
        "x" * 400,
    ):
        assert reason(own, tree) == "", own


def test_edits_keep_to_the_lines_that_python_has() -> None:
    text = "X = '\u2028'\n\n\ndef f(x):\n    y = x\n    return y\n    # c"
    source = Python().read("a.py", text, (".",))
    (function,) = Python().functions(source)
    (edit,) = apply({"a.py": text}, [Python().emptied(function, "raise NotImplementedError")])
    assert edit.text == "X = '\u2028'\n\n\ndef f(x):\n    raise NotImplementedError"
    text = '__all__ = [\n"f",\n\n"g",\n]\n'
    first, second = text.index('"f'), text.index('"g')
    splices = [Splice("a.py", first, first + 5, ""), Splice("a.py", second, second + 5, "")]
    assert apply({"a.py": text}, splices)[0].text == "__all__ = [\n]\n"


@pytest.mark.parametrize("mark", ["@ mark", "@mark", "@(\n        mark)", "@mark  # a@b\n    @other"])
def test_a_body_that_begins_with_a_decorator_goes_with_its_comments(mark: str) -> None:
    text = f"def f(x):\n    # why\n    {mark}\n    def g():\n        return x\n    return g()\n"
    source = Python().read("a.py", text, (".",))
    (function,) = Python().functions(source)
    (edit,) = apply({"a.py": text}, [Python().emptied(function, "raise NotImplementedError")])
    assert edit.text == "def f(x):\n    raise NotImplementedError\n"


def test_what_is_left_of_an_if_has_every_line_of_the_arm_that_stays() -> None:
    text = "def f(a):\n    if a:\n        x = 1\n    else:\n        y = 1 \\\n          ;\n    return a\n"
    (function,) = Python().functions(Python().read("m.py", text, (".",)))
    (arm,) = Python().arms(function)
    (edit,) = apply({"m.py": text}, [arm.without])
    assert edit.text == "def f(a):\n    y = 1 \\\n      ;\n    return a\n"


def test_the_cases_of_a_test_are_one_function_in_the_language_of_the_test() -> None:
    ids = {"a.test.ts::f > of [ 1 ]", "a.test.ts::f > of [ 2 ]"}
    assert num_functions(JavaScript(), ids) == 2
    assert num_functions(Python(), {"a.py::test_f[1]", "a.py::test_f[2]", "a.py::test_g"}) == 2


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"setup.cfg": "[metadata]\nname = a\nversion = 2.5.0\n", "a/_vendor.py": "__version__ = '0.1'\n"}, "2.5.0"),
        (
            {"setup.cfg": "[metadata]\nname = a\nversion = attr: a.__version__\n", "a/x.py": "__version__ = '3.1'\n"},
            "3.1",
        ),
        ({"src/a/__init__.py": "__version__ = '3.1'\n", "tests/__init__.py": "__version__ = '9.9.9'\n"}, "0"),
        ({"setup.py": "foo(version='0.0')\nsetup(name='a', version='1.2')\n"}, "1.2"),
        ({"setup.py": "setup(name='a', version={[]: 1})\n"}, "0"),
        ({"pyproject.toml": "[tool.poetry]\nname = 'a'\nversion = '4.0'\n"}, "4.0"),
    ],
)
def test_a_version_is_read_only_where_it_is_certain(files: dict[str, str], version: str, tmp_path: Path) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert read_metadata(tmp_path).version == version


def test_a_value_that_goes_with_a_definition_is_named(tmp_path: Path) -> None:
    text = "class Plain:\n    def one(self): return 1\n\n\nclass Rich:\n    KINDS = (Plain,)\n    SIZE = 1\n"
    text += "\n\ndef kinds(): return Rich.KINDS\n"
    folder = toy.write(tmp_path / "toy", **{"tinytext/kinds.py": text})
    package = open_package(str(folder), tmp_path / "work")
    some, test = frozenset[str](), frozenset({"tests/test_words.py::test_title"})
    users = frozenset({"tests/test_spans.py::test_noon"})
    lines = {"tinytext/kinds.py": dict.fromkeys(range(1, 3), test) | {10: users}}
    model = PackageModel(package, Baseline(test | users, some, some, 0, {}, {}, lines, {}, some, some, 0.0))
    candidate = next(one for one in removals(model, random.Random(1)) if one.symbols == ("tinytext.kinds:Plain",))
    assert candidate.guided == test | users, "a test that uses the value fails without it"
    _, more, _ = statements(model, candidate, test)
    assert "What used it was removed as well: `KINDS` in `tinytext/kinds.py`." in more


def test_tests_of_what_is_to_be_written_come_first_and_the_others_say_why_they_fail(tmp_path: Path) -> None:
    folder = toy.write(tmp_path / "toy")
    (folder / "tests" / "test_all.py").write_text(
        "import tinytext\n" + "".join(f"def test_{number}(): pass\n" for number in range(40))
    )
    empty: frozenset[str] = frozenset()
    package = open_package(str(folder), tmp_path / "work")
    test = frozenset({"tests/test_words.py::test_title"})
    lines = {"tinytext/words.py": {4: test}}
    asked = []

    class Asked(Baseline):
        def tests_of(self, path: str, first: int, last: int) -> frozenset[str]:
            asked.append(path)
            return super().tests_of(path, first, last)

    model = PackageModel(package, Asked(test, empty, empty, 0, {}, {}, lines, {}, empty, empty, 0.0))
    failing = [f"tests/test_all.py::test_{number}" for number in range(40)] + ["tests/test_words.py::test_title"]
    gone = Splice("tinytext/words.py", 0, len(toy.WORDS), "")
    candidate = Candidate("removal", "", ("tinytext.words:title",), (gone,), empty, 1, breaks_imports=True)
    least, _, _ = statements(model, candidate, failing)
    first, _, others = least.partition("These fail without running what was removed:")
    assert "Failing tests:\n\n- `tests/test_words.py::test_title`\n\n" in first
    assert "test_all" not in first
    assert "- and 35 more" in others
    assert asked == ["tinytext/words.py"], "the tests of the code are looked up once"


def test_a_bug_is_described_by_what_its_tests_show(made: tasks.TaskSet) -> None:
    task = one_task(made, "bug")
    _, more, _ = task.statements
    shown = more.partition("So tests fail, for example ")[2]
    assert shown.startswith(f"`{task.fail_to_pass[0].split('::')[0]}::")
    assert "/lane-" not in shown
    assert "assert " in shown or "Error" in shown, shown


def test_a_deleted_piece_leaves_no_second_blank_line() -> None:
    text = "a = 1\n\n\ndef one():\n    pass\n\n\ndef two():\n    pass\n\n\ndef three():\n    pass\n"
    for name, left in (("one", ["two", "three"]), ("two", ["one", "three"]), ("three", ["one", "two"])):
        start = text.index(f"def {name}")
        (edit,) = apply({"a.py": text}, [Splice("a.py", start, text.index("pass", start) + 5, "")])
        assert edit.text == "a = 1\n" + "".join(f"\n\ndef {one}():\n    pass\n" for one in left)
    text = "function f() {\n  const a = 1;\n\n  if (a) g();\n}\n"
    start = text.index("  if")
    (edit,) = apply({"a.ts": text}, [Splice("a.ts", start, text.index("}"), "")])
    assert edit.text == "function f() {\n  const a = 1;\n}\n"


def test_a_statement_shows_the_fields_of_a_class_and_not_their_values() -> None:
    text = """
class Case(enum.Enum):
    \"\"\"How to write.

    In letters.
    \"\"\"
    UPPER = 1
    _own = 2

class Options(TypedDict, total=False):
    case: Case
    width: int = 80
    def check(self): return self.width
"""
    python = Python()
    source = python.read("options.py", text, (".",))
    assert python.head(source, "Case") == (
        'class Case(enum.Enum):\n    """How to write.\n\n    In letters."""\n    UPPER = ...'
    )
    fields = "class Options(TypedDict, total=False):\n    case: Case\n    width: int = ...\n"
    assert python.head(source, "Options") == fields + "\n    def check(self):\n        ..."


def test_a_version_keeps_the_tasks_of_other_packages(made: tasks.TaskSet, tmp_path: Path) -> None:
    where = hub.FolderDestination(tmp_path)
    few = tuple(dataclasses.replace(task, package="other", task_id=f"o{task.task_id}") for task in made.tasks[:2])
    report = dataclasses.replace(made.reports[0], package="other")
    other = dataclasses.replace(made, tasks=few, reports=(report,))
    for one in (other, made):
        hub.update(where, "me/tasks", lambda before, one=one: tasks.draft(one, "tasks", before))
    published = {task.task_id: task for task in tasks.tasks_of(hub.load(where, "me/tasks"))}
    assert {task.package for task in published.values()} == {"other", "tinytext"}
    assert all(published[task.task_id] == task for task in made.tasks)
    card = (tmp_path / "me/tasks/README.md").read_text()
    assert "| tinytext | 1.2 | mit | no |" in card


def test_a_harbor_tree_is_tried_before_it_is_written(made: tasks.TaskSet, bundle: Path, venv: Path) -> None:
    task = one_task(made, "stub")
    files = tree_of(task, bundle, made.bundles[0].requirements, oracle_of(made, task))
    check_tree(files, open_sandbox(), venv)
    unsolved = {name: data for name, data in files.items() if not name.startswith("solution/files/")}
    with pytest.raises(HarborTreeError, match="gives 0 to the solution"):
        check_tree(unsolved, open_sandbox(), venv)


def test_trees_are_published_with_the_rows_and_stay_while_their_tasks_do(made: tasks.TaskSet, tmp_path: Path) -> None:
    where = hub.FolderDestination(tmp_path)
    kinds = ("stub", "bug")
    few = tuple(one_task(made, kind) for kind in kinds)
    first = dataclasses.replace(made, tasks=few)
    published = hub.update(
        where, "me/tasks", lambda before: tasks.draft(first, "tasks", before, repo="me/tasks", num_trees=2)
    )
    (registry,) = json.loads((tmp_path / "me/tasks/registry.json").read_text())
    assert (registry["name"], registry["version"]) == ("tasks", published.tag)
    assert {one["name"] for one in registry["tasks"]} == {task.task_id for task in few}
    assert all((tmp_path / "me/tasks" / one["path"] / "task.toml").is_file() for one in registry["tasks"])
    world = world_of(f"me/tasks@{published.tag}", where, environment="bubblewrap")
    assert len(world.rows or ()) == 2

    # The same rows without trees change nothing, and another package's version keeps them.
    with pytest.raises(hub.NothingToPublish):
        hub.update(where, "me/tasks", lambda before: tasks.draft(first, "tasks", before, repo="me/tasks", num_trees=2))
    more = tuple(dataclasses.replace(task, package="other", task_id=f"o{task.task_id}") for task in few)
    report = dataclasses.replace(made.reports[0], package="other")
    other = dataclasses.replace(made, tasks=more, reports=(report,))
    second = hub.update(where, "me/tasks", lambda before: tasks.draft(other, "tasks", before, repo="me/tasks"))
    (registry,) = json.loads((tmp_path / "me/tasks/registry.json").read_text())
    assert registry["version"] == second.tag
    assert {one["name"] for one in registry["tasks"]} == {task.task_id for task in few}
    assert where.fetch("me/tasks", second.revision, f"tasks/{few[0].task_id}/instruction.md") is not None


def test_trees_are_not_published_for_everyone(tmp_path: Path) -> None:
    words = ["tasks", "make", str(tmp_path), "--repo", "me/t", "--to", str(tmp_path / "out"), "--public"]
    with pytest.raises(exits.Refused, match="hold the oracles"):
        root.main([*words, "--harbor", "1"], standalone_mode=False)


def landlock_or_any() -> str:
    try:
        return open_sandbox("landlock").isolation
    except exits.Refused:
        return "auto"


@pytest.mark.slow
def test_the_command_publishes_checks_and_gives_the_same_rows_as_one_worker_in_another_sandbox(
    few: tasks.TaskSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = hub.FolderDestination(tmp_path / "out")
    options = ["--kinds", ",".join(FEW.kinds), "--max-per-kind", f"{FEW.max_per_kind}", "--recheck-every", "0"]
    place = ["--repo", "me/t", "--to", str(tmp_path / "out")]
    options += ["--workers", "2", "--sandbox", landlock_or_any()]
    root.main(["tasks", "make", few.reports[0].source, *options, *place], standalone_mode=False)
    root.main(["tasks", "show", "me/t", "--from", str(tmp_path / "out"), "--format", "quiet"], standalone_mode=False)
    shown = capsys.readouterr().out.split()[-1]
    root.main(["tasks", "check", "me/t", shown[:8], "--from", str(tmp_path / "out")], standalone_mode=False)
    assert "All 1 tasks reward their solution and nothing else." in capsys.readouterr().out
    assert tuple(tasks.tasks_of(hub.load(where, "me/t"))) == few.tasks
    assert [row["digest"] for row in hub.load(where, "me/t").rows("bundles")] == [one.digest for one in few.bundles]
    oracles = {row["task_id"]: row["oracle"] for row in hub.load(where, "me/t-oracle").rows("oracle")}
    (parent,) = hub.load(where, "me/t").manifest["parents"]
    assert parent["revision"] == hub.load(where, "me/t-oracle").revision
    assert oracles == dict(few.oracles) != {}


def test_a_bundle_has_the_same_bytes_whenever_it_is_packed(tmp_path: Path) -> None:
    first = pack(toy.write(tmp_path / "a"))
    assert pack(toy.write(tmp_path / "b")) == first
