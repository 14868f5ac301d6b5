"""Sources that give nothing, and tests that misbehave: a counted reason each."""

from __future__ import annotations

import os
import random
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from composer_hub import tasks
from composer_hub.environments.venvs import site_packages
from composer_hub.records import SourceEdit
from composer_hub.tasks.baseline import Baseline, advice, measure
from composer_hub.tasks.bench import Bench, Job
from composer_hub.tasks.code import Source
from composer_hub.tasks.deletion import PackageModel, stubs
from composer_hub.tasks.gates import check, recheck
from composer_hub.tasks.language import PackageRefused
from composer_hub.tasks.metadata import Metadata, is_copyleft, read_metadata
from composer_hub.tasks.oracles import record
from composer_hub.tasks.sources import open_package
from composer_hub.tasks.write_tests import test_function as the_test
from tests.tasks import toy


def test_a_test_is_found_if_no_other_has_its_name() -> None:
    text = (
        "def test_a(): pass\nclass TestB:\n  def test_a(self): pass\n  def test_c(self): pass\n  def test_c(self): 1\n"
    )
    source = Source("test_x.py", "test_x", text)
    assert [the_test(source, names) is not None for names in (["test_a"], ["TestB", "test_a"])] == [True, True]
    assert [the_test(source, names) for names in (["TestB", "test_c"], ["test_d"], ["TestB"])] == [None] * 3


@pytest.mark.parametrize(
    ("reason", "files"),
    [
        ("no_python", {"README.md": "nothing"}),
        ("no_tests", {"tiny/__init__.py": "x = 1\n"}),
        ("syntax", {"tiny.py": "def f(:\n", "test_tiny.py": "match x:\n"}),
        ("shadows_stdlib", {"statistics.py": "x = 1\n", "test_statistics.py": "import statistics\n"}),
        ("no_sources", {"tests/test_nothing.py": "def test(): pass\n"}),
    ],
)
def test_a_folder_that_gives_no_tasks_is_refused_with_its_reason(
    reason: str, files: dict[str, str], tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with pytest.raises(PackageRefused) as caught:
        open_package(str(tmp_path / "source"), tmp_path / "work")
    assert caught.value.reason == reason


def test_an_archive_that_is_not_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny-1.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(PackageRefused, match=r"tiny-1\.tar\.gz cannot be read") as caught:
        open_package(str(tmp_path / "tiny-1.tar.gz"), tmp_path / "work")
    assert caught.value.reason == "broken_archive"


def test_links_caches_builds_and_secrets_stay_out_of_the_tree(tmp_path: Path) -> None:
    source = toy.write(tmp_path / "source", **{
        "build/lib/tinytext/words.py": toy.WORDS, "tinytext/__pycache__/words.pyc": "x", ".env": "TOKEN=1",
        "tinytext/words.py.orig": toy.WORDS, "data/key.pem": "x", "tinytext/kept.txt": "kept",
    })  # fmt: skip
    (tmp_path / "secret.py").write_text("x = 1\n")
    os.symlink(tmp_path / "secret.py", source / "tinytext" / "outside.py")
    os.symlink("words.py", source / "tinytext" / "inside.py")
    (source / os.fsdecode(b"tinytext/caf\xe9.py")).write_text("ONE = 1\n")  # no row can hold this name
    package = open_package(str(source), tmp_path / "work")
    files = {path.relative_to(package.folder).as_posix() for path in package.folder.rglob("*") if path.is_file()}
    assert files == {
        "pyproject.toml", "tinytext/__init__.py", "tinytext/words.py", "tinytext/spans.py", "tinytext/inside.py",
        "tinytext/kept.txt", "tests/test_words.py", "tests/test_spans.py", "tinytext-1.2.dist-info/METADATA",
    }  # fmt: skip
    assert (package.skipped["link"], package.skipped["name"]) == (1, 1)
    assert not any(path.is_symlink() for path in package.folder.rglob("*"))


def test_a_package_that_is_only_linked_is_refused_with_the_reason(tmp_path: Path) -> None:
    toy.write(tmp_path / "elsewhere")
    source = tmp_path / "source"
    (source / "tests").mkdir(parents=True)
    (source / "tests/test_words.py").write_text("def test(): pass\n")
    os.symlink(tmp_path / "elsewhere/tinytext", source / "tinytext")
    with pytest.raises(PackageRefused, match="Links are not followed") as caught:
        open_package(str(source), tmp_path / "work")
    assert caught.value.reason == "no_sources"


def test_files_that_git_ignores_are_not_copied(tmp_path: Path) -> None:
    source = toy.write(tmp_path / "source", **{".gitignore": "private/\n", "private/notes.py": "x = 1\n"})
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    package = open_package(str(source), tmp_path / "work")
    assert not (package.folder / "private").exists()
    assert (package.folder / "tinytext/words.py").exists()


def test_comments_beside_requirements_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "setup.cfg").write_text(
        "[metadata]\nname = x\n[options]\ninstall_requires =\n  six>=1  # why\n  # more\n  y @ https://h/y.whl#egg=y\n"
    )
    assert read_metadata(tmp_path).requirements == ("six>=1", "y @ https://h/y.whl#egg=y")


def test_poetrys_optional_requirements_are_left_out_and_its_markers_and_groups_count(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("""
[tool.poetry.dependencies]
python = "^3.11"
tomli = "*"
rich = {version = "^13", optional = true}
pywin32 = {version = "*", markers = "sys_platform == 'win32'"}
[tool.poetry.group.dev.dependencies]
responses = "^0.25"
black = "*"
""")
    (tmp_path / "test_it.py").write_text("import responses\n")
    metadata = read_metadata(tmp_path)
    assert metadata.requirements == ("tomli", "pywin32; sys_platform == 'win32'")
    assert metadata.test_requirements == ("responses",)


def test_metadata_comes_from_pyproject_with_what_the_tests_need(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "2"\ndependencies = ["six"]\nlicense = {text = "GPL-3.0-or-later"}\n'
        '[project.optional-dependencies]\ntest = ["pytest", "attrs"]\ndocs = ["sphinx"]\n'
    )
    metadata = read_metadata(tmp_path)
    assert metadata == Metadata("x", "2", "gpl-3.0-or-later", ("six",), ("attrs",))
    (tmp_path / "tox.ini").write_text("[testenv]\ndeps =\n    py: pytest-mock>=3\n    sphinx\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text("import yaml, os\nfrom hypothesis import given\n")
    assert read_metadata(tmp_path).test_requirements == ("hypothesis", "pytest-mock", "pyyaml", "attrs")
    assert is_copyleft(metadata.license)
    assert not is_copyleft("mit")


def test_tests_get_what_they_import_if_the_package_names_it(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\n[project.optional-dependencies]\ncli = ["click>=5.0", "rich", "typing_extensions"]\n'
    )
    (tmp_path / "requirements.txt").write_text("IPython\nhelpers\nruff\n")
    (tmp_path / "src/x").mkdir(parents=True)
    (tmp_path / "src/x/ipython.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/helpers.py").touch()
    (tmp_path / "tests/conftest.py").write_text(
        "from click.testing import CliRunner\nimport helpers, json\nimport unnamed\nimport typing_extensions\n"
    )
    (tmp_path / "tests/test_x.py").write_text("def test():\n    from IPython import get_ipython\n    import x\n")
    assert read_metadata(tmp_path).test_requirements == ("ipython", "click>=5.0", "typing_extensions")


HOSTILE = """
import os, pathlib, signal, sys, time

def test_good():
    from tinytext import title
    assert title("a") == "A"

def test_writes_home():
    (pathlib.Path.home() / "left-behind").write_text("x")

def test_prints():
    for _ in range(5_000):
        print("x" * 2000)

def test_writes_the_source():
    import tinytext
    pathlib.Path(tinytext.__file__).write_text("broken(")

def test_hangs():
    time.sleep(600)
"""
KILLER = """
import os, signal
def test_kills_its_parent():
    os.kill(os.getppid(), signal.SIGKILL)
"""


def test_tests_that_misbehave_cost_themselves_only(venv: Path, tmp_path: Path) -> None:
    source = toy.write(tmp_path / "source", **{"tests/test_hostile.py": HOSTILE, "tests/test_killer.py": KILLER})
    tmp_path.chmod(0o755)
    package = open_package(str(source), tmp_path / "work")
    bench = Bench(package, venv, tmp_path / "bench")
    hostile = Job("a", ("tests/test_hostile.py",), seconds=30, test_seconds=0.2)
    killer = Job("b", ("tests/test_killer.py",), seconds=30)
    fine = Job("c", ("tests/test_words.py",), seconds=30)
    first, second, third = bench.run([hostile, killer, fine])
    assert first.statuses["tests/test_hostile.py::test_good"] == "passed"
    # A test that sleeps is not known to fail: a busy machine might have stopped it.
    assert (first.statuses["tests/test_hostile.py::test_hangs"], first.problem) == ("late", "late")
    assert second.problem == "killed"
    assert third.passed() >= {"tests/test_words.py::test_title", "tests/test_words.py::test_in_a_process"}
    assert not (Path.home() / "left-behind").exists()
    assert (package.folder / "tinytext/__init__.py").read_text() == toy.INIT


def test_a_file_that_kills_the_run_is_set_aside(venv: Path, tmp_path: Path) -> None:
    source = toy.write(tmp_path / "source", **{"tests/test_killer.py": KILLER})
    tmp_path.chmod(0o755)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench")
    baseline = measure(bench)
    assert baseline.set_aside == {"tests/test_killer.py": "killed"}
    assert "tests/test_spans.py::test_units" in baseline.passing


def test_a_file_that_skips_itself_costs_no_other_test(venv: Path, tmp_path: Path) -> None:
    skips = 'import pytest\npytest.importorskip("nothing_here")\ndef test_one(): pass\n'
    source = toy.write(tmp_path / "source", **{"tests/test_extra.py": skips})
    tmp_path.chmod(0o755)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench")
    (tmp_path / "bench/lane-0/out/left/by").mkdir(parents=True)  # as by a run that was killed
    (report,) = bench.run([Job("a", ("tests/test_extra.py", "tests/test_words.py"), seconds=30)])
    assert report.passed() >= {"tests/test_words.py::test_title"}, report.detail
    assert not report.values["broken_files"]


def test_a_test_that_is_named_after_the_place_of_the_tree_is_not_used(venv: Path, tmp_path: Path) -> None:
    named = 'import os, pytest\n@pytest.mark.parametrize("place", [os.getcwd(), "here"])\ndef test_one(place): pass\n'
    source = toy.write(tmp_path / "source", **{"tests/test_place.py": named})
    tmp_path.chmod(0o755)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench")
    (report,) = bench.run([Job("a", ("tests/test_place.py",), seconds=30)])
    assert report.passed() == {"tests/test_place.py::test_one[here]"}


SLOW = """
import time
from numbers_ import low, high

def test_low():
    assert low() == 1

def test_high():
    assert high() == 9

def test_burns():
    end = time.process_time() + 0.6
    while time.process_time() < end:
        assert low()

def test_waits_for_a_number():
    while high() < 9:
        pass

def test_waits_for_one_digit():
    while high() > 9:
        pass
"""


def test_slow_tests_are_left_out_and_a_file_that_does_not_import_is_named(venv: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "numbers_.py").write_text("def low():\n    return 1\n\ndef high():\n    return 9\n")
    (source / "test_numbers.py").write_text(SLOW)
    (source / "test_broken.py").write_text("import nothing_of_this_name\n")
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench")
    baseline = measure(bench, suite_seconds=0.5)
    assert baseline.slow == {"test_numbers.py::test_burns"}
    assert baseline.set_aside == {"test_broken.py": "cannot be imported"}
    assert baseline.tests_of("numbers_.py", 2, 2) == {"test_numbers.py::test_low"}

    # A job ends with the second test that hangs, and an edit that is slow in one test only is not lost.
    wrong = SourceEdit("numbers_.py", "def low():\n    return 1\n\ndef high():\n    return 5\n")
    job = Job("one", ("test_numbers.py",), (wrong,), seconds=30, test_seconds=0.5, options={"max_hanging": 2})
    two = replace(job, name="two", options={"max_hanging": 1})
    first, second = bench.run([job, two])
    assert (first.problem, first.statuses["test_numbers.py::test_waits_for_a_number"]) == ("", "failed")
    assert second.problem == "hangs"
    assert "test_numbers.py::test_waits_for_one_digit" not in second.statuses


@pytest.mark.parametrize(
    ("reason", "tests", "more"),
    [
        ("needs_compilation", "import tiny._speed\n", {"tiny/_speed.c": "int x;"}),
        ("no_test_passes", "import socket\ndef test():\n    socket.create_connection(('127.0.0.1', 5432), 2)\n", {}),
        ("tests_kill", KILLER, {}),
        ("no_test_passes", "", {}),
    ],
)
def test_a_package_none_of_whose_tests_can_pass_is_refused_with_its_reason(
    reason: str, tests: str, more: dict[str, str], venv: Path, tmp_path: Path
) -> None:
    for name, text in {"tiny/__init__.py": "def f():\n    return 1\n", "tests/test_tiny.py": tests, **more}.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "source/pyproject.toml").write_text('[project]\nname = "tiny"\nversion = "1"\n')
    tmp_path.chmod(0o755)
    bench = Bench(open_package(str(tmp_path / "source"), tmp_path / "work"), venv, tmp_path / "bench")
    with pytest.raises(PackageRefused) as caught:
        measure(bench)
    assert caught.value.reason == reason
    wanted = "tests/test_tiny.py::test fails: " if "connection" in tests else "None was found."
    assert reason != "no_test_passes" or wanted in str(caught.value)


UNSTABLE = """
import pytest
from tinytext import title

class Thing:
    pass

@pytest.mark.parametrize("thing", [Thing(), Thing()], ids=repr)
def test_thing(thing):
    assert title("a b") == "A B"
"""


def test_ids_that_hold_an_address_are_in_no_list(venv: Path, tmp_path: Path) -> None:
    source = toy.write(tmp_path / "source", **{"tests/test_unstable.py": UNSTABLE})
    tmp_path.chmod(0o755)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench")
    model = PackageModel(bench.package, measure(bench))
    candidates = [one for one in stubs(model, random.Random(0)) if one.symbols == ("tinytext.words:title",)]
    (checked,) = recheck(bench, model, check(bench, model, candidates, 100))
    assert (checked.reason, checked.recheck) == ("", "exact")
    assert not [id for id in checked.fail_to_pass | checked.pass_to_pass if " at 0x" in id]


SPAWNING = """
import os, subprocess, sys
import paths

def test_reports():
    assert subprocess.run([sys.executable, "-c", "import paths; paths.seen()"]).returncode == 0

def test_hides():
    code = "import sys; sys.path.insert(0, '.'); import paths; paths.hidden()"
    assert subprocess.run([sys.executable, "-I", "-c", code]).returncode == 0

def test_forks():
    child = os.fork()
    if not child:
        paths.hidden()
        os._exit(0)
    os.waitpid(child, 0)

def test_plain():
    assert paths.other() == 3
"""


def test_lines_of_a_process_count_for_its_test_and_a_test_that_cannot_be_watched_is_known(
    kind: str, venv: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    bodies = "".join(f"def {name}():\n    return {number}\n" for number, name in enumerate(("seen", "hidden"), 1))
    (source / "paths.py").write_text(f"{bodies}def other():\n    return 3\n")
    (source / "test_paths.py").write_text(SPAWNING)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench", sandbox=kind)
    baseline = measure(bench)
    names = {id.partition("::")[2] for id in baseline.unseen}
    assert names == {"test_hides", "test_forks"}
    assert baseline.spawners == baseline.unseen | {"test_paths.py::test_reports"}
    assert baseline.tests_of("paths.py", 2, 2) == {"test_paths.py::test_reports"}
    assert baseline.tests_of("paths.py", 6, 6) == {"test_paths.py::test_plain"}


BUSY = """
import time
import paths

def test_computes():
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass

def test_calls():
    assert paths.slow(1) == 2
"""
SLOW_CODE = """
import time

def slow(number):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    return number + 1
"""


@pytest.mark.slow
def test_limits_of_tests_and_calls_are_processor_time(
    kind: str, venv: Path, tmp_path: Path, busy_processor: None
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "paths.py").write_text(SLOW_CODE)
    (source / "test_paths.py").write_text(BUSY)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench", sandbox=kind)
    tests = Job("tests", ("test_paths.py",), seconds=5, test_seconds=0.8)
    call = {"target": "paths:slow", "args": [1], "kwargs": {"d": []}}
    first, second = bench.run([tests, Job("calls", (), seconds=5, options={"calls": [call]})])
    assert (first.problem, set(first.statuses.values())) == ("", {"passed"})
    assert second.values["answers"] == [{"is": 2}]


DENIED = """
import socket
from tinytext import title

def test_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(title("a").encode())
"""


def test_a_package_whose_tests_need_what_landlock_lacks_is_refused_there_unless_landlock_is_named(
    kind: str, venv: Path, tmp_path: Path
) -> None:
    source = toy.write(tmp_path / "source", **{"tests/test_denied.py": DENIED})
    tmp_path.chmod(0o755)
    package = open_package(str(source), tmp_path / "work")
    needing = "tests/test_denied.py::test_listens"
    named = measure(Bench(package, venv, tmp_path / "named", sandbox=kind))
    assert (needing in named.passing) == (kind == "bubblewrap")
    bench = Bench(package, venv, tmp_path / "auto")
    if bench.isolation == "bubblewrap":
        assert needing in measure(bench).passing
    else:
        with pytest.raises(PackageRefused, match="--sandbox landlock") as caught:
            measure(bench)
        assert caught.value.reason == "sandbox"


def test_recorded_calls_and_answers_never_hold_the_place_of_the_tree(kind: str, venv: Path, tmp_path: Path) -> None:
    places = "import os\n\ndef here(name):\n    return os.path.join(os.path.dirname(__file__), name)\n"
    tests = "import paths\n\ndef test_here():\n    assert paths.here(paths.here('a')) and paths.here('b')\n"
    source = tmp_path / "source"
    source.mkdir()
    (source / "paths.py").write_text(places)
    (source / "test_paths.py").write_text(tests)
    bench = Bench(open_package(str(source), tmp_path / "work"), venv, tmp_path / "bench", sandbox=kind)
    model = PackageModel(bench.package, measure(bench))
    targets = {"paths.py:3": {"name": "paths:here", "kind": "function", "class": "paths:"}}
    (report,) = bench.run([Job("record", ("test_paths.py",), options={"record": targets})])
    assert [one["call"]["args"] for one in report.values["recorded"]] == [["a"], ["b"]]
    assert record(bench, model, ["paths:here"], 0) == []


def test_a_package_that_pytest_itself_loads_is_refused_by_name(venv: Path, tmp_path: Path) -> None:
    folder = toy.write(tmp_path / "pluggy", **{"pluggy/__init__.py": toy.WORDS, "pyproject.toml": ""})
    (report,) = tasks.make([str(folder)], tasks.TaskOptions(workers=1)).reports
    assert (report.refused, "Leave out this package" in report.sentence) == ("installed_twice", True)


@pytest.mark.slow
def test_what_brings_a_copy_of_the_package_is_not_installed_for_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSER_VENVS", str(tmp_path / "venvs"))
    wheel = tmp_path / "bringer-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tinytext/__init__.py", "")
        file.writestr("bringer-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: bringer\nVersion: 1\n")
        file.writestr("bringer-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("bringer-1.dist-info/RECORD", "")
    extra = f'[project]\nname = "tinytext"\n[project.optional-dependencies]\ntest = ["bringer @ file://{wheel}"]\n'
    source = toy.write(tmp_path / "tinytext", **{"pyproject.toml": extra})
    package = open_package(str(source), tmp_path / "work")
    assert package.metadata.test_requirements == (f"bringer @ file://{wheel}",)
    venv = package.language.environment(package, ())
    assert not (site_packages(venv) / "tinytext").exists()


def test_tests_that_match_a_pattern_are_left_out(venv: Path, tmp_path: Path) -> None:
    package = open_package(str(toy.write(tmp_path / "source")), tmp_path / "work")
    tmp_path.chmod(0o755)
    bench = Bench(package, venv, tmp_path / "bench")
    baseline = measure(bench, without=["tests/test_spans.py", "*::test_slug*"])
    assert {id.split("::")[1] for id in baseline.passing} == {
        "test_title", "test_shout", "test_shout_again", "test_in_a_process",
    }  # fmt: skip
    with pytest.raises(PackageRefused, match="leaves out every test file"):
        measure(bench, without=["*"])


def test_tests_whose_processes_cannot_be_watched_are_named_with_what_leaves_them_out() -> None:
    empty: frozenset[str] = frozenset()
    ids = frozenset({"test_cli.py::test_run", "test_code.py::test_add"})
    seconds = {"test_cli.py::test_run": 3.0, "test_code.py::test_add": 1.0}
    slow = {"test_net.py": "hangs"}
    baseline = Baseline(ids, empty, empty, 0, slow, seconds, {}, {}, empty, frozenset({"test_cli.py::test_run"}), 4.0)
    assert "75% of the suite's time): --without 'test_cli.py::*'" in advice(baseline)
    assert "--without 'test_net.py' saves the wait" in advice(baseline)
    assert advice(replace(baseline, unseen=empty, set_aside={})) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("setup.cfg", "[metadata]\nname = tiny\n[options]\ninstall_requires =\n    attrs>=1\n"),
        (
            "setup.py",
            "import setuptools as s\ns.setup(name='tiny', version=read(), install_requires=['attrs>=1'])\n",
        ),
    ],
)
def test_name_and_requirements_are_read_from_older_files(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    metadata = read_metadata(tmp_path)
    assert (metadata.name, metadata.requirements) == ("tiny", ("attrs>=1",))


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ("[tool.hatch.build.hooks.vcs]\nversion-file = 'tinytext/_version.py'", True),
        ("[tool.setuptools_scm]\nwrite_to = 'tinytext/_version.py'", True),
        ("[tool.setuptools_scm]\nwrite_to = '../_version.py'", False),
    ],
)
def test_a_version_module_that_a_build_writes_is_there(settings: str, wanted: bool, tmp_path: Path) -> None:
    folder = toy.write(tmp_path / "source", **{"pyproject.toml": f"{toy.PYPROJECT}\n{settings}\n"})
    package = open_package(str(folder), tmp_path / "work")
    assert ("tinytext/_version.py" in package.sources) == wanted
    assert not (tmp_path / "work/_version.py").exists()
    if wanted:
        assert '__version__ = version = "1.2"' in package.text("tinytext/_version.py")
