"""Files that a user names: text in every encoding that editors and shells write, nothing that hangs, whole writes."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from composer_hub import exits
from composer_hub.ingest import read_denied
from composer_hub.jobs.inputs import _config
from composer_hub.named_files import encoding_of, problem_of, text_of, write_whole
from composer_hub.pairs import read_verdicts
from composer_hub.redact import dotenv_secrets
from composer_hub.replay.teachers import read_file
from composer_hub.train.presets import read_config

WRITERS: dict[str, Callable[[str], bytes]] = {
    "UTF-8": str.encode,
    "with a mark": lambda text: text.encode("utf-8-sig"),
    "PowerShell's": lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"),
    "big endian": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "without a mark": lambda text: text.encode("utf-16-le"),
    "big endian without a mark": lambda text: text.encode("utf-16-be"),
}
READERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "--deny": (read_denied, "t1\nt2  # é\n"),
    "--env-file": (lambda path: dotenv_secrets([path]), "# é\nAPI_KEY=xK83hdTq0Zp51mWvNb2c\n"),
    "--teachers-file": (read_file, "teachers:\n- at: http://localhost:1#é\n"),
    "--verdicts": (lambda path: list(read_verdicts(path)), '{"pair_id": "a", "verdict": "accept", "reviewer": "é"}\n'),
    "--config": (read_config, "model: é\nmax_steps: 3\n"),
    "jobs --config": (lambda path: _config(str(path)), "model: é\nmax_steps: 3\n"),
}


@pytest.mark.parametrize("option", READERS)
def test_a_file_says_the_same_in_every_encoding(option: str, tmp_path: Path) -> None:
    read, text = READERS[option]
    found = []
    for number, write in enumerate(WRITERS.values()):
        path = tmp_path / f"file{number}"
        path.write_bytes(write(text))
        found.append(read(path))
    assert found[0]
    assert found == [found[0]] * len(WRITERS)


@pytest.mark.parametrize("option", READERS)
def test_a_pipe_is_refused_by_every_reader(option: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    if option == "--env-file":
        assert dotenv_secrets([tmp_path, tmp_path / "pipe"]) == ()
        return
    with pytest.raises(exits.ComposerError, match=r"pipe.* a file"):
        READERS[option][0](tmp_path / "pipe")


def test_the_first_character_of_a_text_decides_its_encoding() -> None:
    for character in map(chr, range(1, 128)):
        assert encoding_of(f"{character}a".encode("utf-16-le")) == "utf-16-le"
        assert encoding_of(f"{character}a".encode("utf-16-be")) == "utf-16-be"
        assert encoding_of(f"{character}a".encode()) == "utf-8"
    assert encoding_of(b"") == encoding_of(b"{") == "utf-8"


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "noise").write_bytes(b"a\xff\x00")
    with pytest.raises(exits.UsageError, match=r"noise is not text .*Save it as UTF-8"):
        text_of(tmp_path / "noise")


def test_a_pipe_that_the_shell_opened_is_read(tmp_path: Path) -> None:
    code = "import sys; from composer_hub.named_files import text_of, Path; print(text_of(Path(sys.argv[1])))"
    command = 'exec "$0" -c "$1" /dev/stdin'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, code], input="given", capture_output=True, text=True, check=True
    )
    assert done.stdout == "given\n"
    assert text_of(Path(os.devnull)) == ""


def test_files_folders_and_nothing_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert [problem_of(path) for path in (tmp_path, tmp_path / "file", tmp_path / "missing")] == ["", "", ""]


@pytest.mark.parametrize("name", ["page.html", "é" * 127, "n" * 255], ids=["short", "é", "longest"])
def test_a_file_is_written_over_the_old_one_with_nothing_beside_it(name: str, tmp_path: Path) -> None:
    for content in (b"old and long", b"new"):
        write_whole(tmp_path / name, content)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: content}


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"old")
    with pytest.raises(TypeError):
        write_whole(tmp_path / "file", "text")  # type: ignore[arg-type]  # breaks off after the file was made
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "folder", b"new")  # breaks off at the rename
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("old", "private", "mode"), [(0o664, False, 0o664), (None, False, 0o640), (0o666, True, 0o600), (None, True, 0o600)]
)
def test_a_private_file_is_its_owners_and_another_keeps_its_mode_or_follows_the_umask(
    old: int | None, private: bool, mode: int, tmp_path: Path
) -> None:
    if old is not None:
        (tmp_path / "file").touch()
        (tmp_path / "file").chmod(old)
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "file", b"new", private=private)
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_an_error_names_the_file_and_not_what_was_written_beside_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "missing" / "file", b"new")
    assert caught.value.filename == str(tmp_path / "missing" / "file")


def test_readers_beside_several_writers_see_one_whole_content(tmp_path: Path) -> None:
    contents = [bytes([number]) * 100_000 for number in range(3)]
    path = tmp_path / "file"
    write_whole(path, contents[0])

    def write(content: bytes) -> None:
        for _ in range(20):
            write_whole(path, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in contents]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in contents
    assert path.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [path]
