"""One file has one spelling, and two files never share one."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_hub.actions.paths import enter, normal_path, tidy
from tests.quick import cases

stable = cases(150)


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("a.py", "a.py"),
        ("./a.py", "a.py"),
        ("/repo/a.py", "a.py"),
        ("/repo", "."),
        ("/repo/", "."),
        (".", "."),
        ("./", "."),
        ("src/", "src/"),
        ("src/.", "src/."),
        ("/repository/a.py", "/repository/a.py"),
        ("/", "/"),
        ("..", "/"),
        ("../x", "/x"),
        ("../../x", "/x"),
        ("/repo/../repo/a.py", "a.py"),
        ("src/../a.py", "src/../a.py"),
        ("/etc/../a", "/etc/../a"),
        ("~/a", "~/a"),
        ("//host/a", "//host/a"),
        ("", None),
    ],
)
def test_a_posix_path_is_relative_to_the_working_directory(path: str, normal: str | None) -> None:
    assert normal_path(path, base="/repo") == normal


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("C:\\Repo\\src\\a.py", "src/a.py"),
        ("c:/Repo/src/a.py", "src/a.py"),
        ("src\\a.py", "src/a.py"),
        ("C:\\Repo", "."),
        ("c:/repo/a.py", "c:/repo/a.py"),
        ("D:\\a", "d:/a"),
        ("C:\\", "c:/"),
        ("..\\x", "c:/x"),
        ("\\\\host\\share\\a", "//host/share/a"),
        ("/a", "/a"),
    ],
)
def test_a_windows_path_is_relative_to_a_windows_working_directory(path: str, normal: str) -> None:
    assert normal_path(path, base="C:\\Repo") == normal


def test_a_relative_path_of_unknown_place_has_no_normal_form() -> None:
    assert normal_path("a", base="") is None
    assert normal_path("a", base="/repo", cwd="") is None
    assert normal_path("/a/./b", base="") == "/a/b"


@pytest.mark.parametrize(
    ("path", "place"),
    [("src", "/repo/src"), ("..", "/"), ("../..", "/"), ("src/../lib", "/repo/lib"), ("/x/", "/x"), ("/", "/")],
)
def test_cd_folds_two_dots_as_the_shell_does(path: str, place: str) -> None:
    assert enter(path, base="/repo", cwd="/repo") == place
    assert enter("src", base="/repo", cwd="") == ""


@pytest.mark.parametrize(("path", "plain"), [("./a", "a"), ("a//b", "a/b"), ("a/./b", "a/b"), (".", "."), ("./", "./")])
def test_tidy_keeps_every_part_that_matters(path: str, plain: str) -> None:
    assert tidy(path) == plain


PATHS = st.lists(st.sampled_from(["a", "b", ".", "..", "", "repo", "-x"]), max_size=5).map("/".join)


@stable
@given(PATHS, PATHS)
def test_paths_with_one_normal_form_name_one_file_without_links(one: str, other: str) -> None:
    a, b = (normal_path(path, base="/repo/pkg") for path in (one, other))
    if a is not None and a == b:
        assert posixpath.normpath(posixpath.join("/repo/pkg", one)).lstrip("/") == posixpath.normpath(
            posixpath.join("/repo/pkg", other)
        ).lstrip("/")


@stable
@given(PATHS)
def test_normalizing_a_path_twice_changes_nothing(path: str) -> None:
    once = normal_path(path, base="/repo/pkg")
    if once:
        assert normal_path(once, base="/repo/pkg") == once
