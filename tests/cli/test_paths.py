"""Paths that hang or never end: every command refuses a pipe, a socket or a device that a user names, and says so."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from composer_hub import exits
from composer_hub.cli.main import root
from composer_hub.cli.paths import FILE, FILE_OR_FOLDER
from tests.shards.sessions import write_sessions


def commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))
        elif command is not None:
            yield (*words, name), command


OPTIONS = [
    (words, param)
    for words, command in commands(root)
    for param in command.params
    if isinstance(param.type, click.Path)
]
FILES = [(words, param.opts[0]) for words, param in OPTIONS if param.type in (FILE, FILE_OR_FOLDER)]
NAMED = {  # what else a command opens because a user names it, with the words after it
    ("ingest",): ["--report"],
    ("report",): ["--out", "page.html"],
    ("report", "--out"): [],
    ("tasks", "make"): ["--repo", "me/tasks", "--dry-run", "--to", "./hub-folder"],
    ("train",): ["--plan"],
    ("teachers", "init", "--out"): [],
    ("pairs", "build", "me/traces", "--repo", "me/pairs", "--to", "./hub-folder", "--run"): [],
    ("shards", "status"): [],
    ("pairs", "report", "me/pairs", "--from"): [],
    ("ingest", "SESSIONS", "--repo", "me/traces", "--to"): [],
}


@pytest.fixture(params=["pipe", "socket", "device", "link to a pipe"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a path that is no file. A command that waits for it is interrupted, since it would wait for ever."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("COMPOSER_HUB_STATE", str(tmp_path / "state"))
    path = tmp_path / "odd"
    with socket.socket(socket.AF_UNIX) as listener:
        if request.param == "socket":
            listener.bind("odd")
        elif request.param == "device":
            path.symlink_to("/dev/zero")
        elif request.param == "pipe":
            os.mkfifo(path)
        else:
            os.mkfifo(tmp_path / "there")
            path.symlink_to("there")
        with interrupted_after(120):
            yield path


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise AssertionError("the command waits for a path that is no file")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(*words: object) -> tuple[BaseException | None, str]:
    done = CliRunner().invoke(root, [str(word) for word in words])
    return done.exception, f"{done.exception} {done.output}"


@pytest.mark.parametrize(
    ("words", "option"), FILES, ids=lambda value: " ".join(value) if isinstance(value, tuple) else value
)
def test_an_option_that_names_a_file_takes_no_pipe_socket_or_device(
    words: tuple[str, ...], option: str, odd: Path
) -> None:
    error, said = run(*words, option, odd)
    assert isinstance(error, exits.UsageError), said
    assert str(odd) in said
    assert "not a file" in said


@pytest.mark.parametrize("words", NAMED, ids=" ".join)
def test_no_command_waits_for_a_path_that_is_no_file(words: tuple[str, ...], odd: Path, tmp_path: Path) -> None:
    given = [str(write_sessions(tmp_path / "sessions", 1)) if word == "SESSIONS" else word for word in words]
    error, said = run(*given, odd, *NAMED[words])
    assert error is not None
    assert isinstance(error, (exits.ComposerError, OSError, SystemExit)), said
    assert "odd" in said


def test_every_option_for_an_existing_file_refuses_what_is_no_file() -> None:
    others = [
        (*words, param.opts[0])
        for words, param in OPTIONS
        if param.type.exists and param.type.file_okay and param.type not in (FILE, FILE_OR_FOLDER)  # type: ignore[attr-defined]
    ]
    assert not others
    assert len(FILES) > 10
