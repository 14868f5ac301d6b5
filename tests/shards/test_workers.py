"""Worker processes: every item has one outcome, in order, whatever happens to the worker that had it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from composer_hub.shards.workers import MAX_DEATHS, Died, WorkerError, how_ended, in_workers


def squared(number: int) -> int:
    return number * number


def begun(folder: Path, number: int) -> int:
    """Note that an item was begun, and with which others."""
    (folder / f"begun{number}").touch()
    return len(list(folder.glob("begun*")))


def lost(folder: Path, how: str, number: int) -> int:
    """End this process over item 1, at the first try only if `how` says so."""
    with (folder / f"tries{number}").open("a") as file:
        file.write("x")
    if number == 1 and (how != "once" or (folder / "tries1").read_text() == "x"):
        if how == "exit":
            os._exit(9)
        os.kill(os.getpid(), signal.SIGSEGV if how == "crash" else signal.SIGKILL)
    return number


class Odd(Exception):
    """An exception that a pickle cannot make again."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} and {other}")


def failing(kind: str, number: int) -> int:
    if number == 2:
        raise {"value": ValueError("two is wrong"), "odd": Odd("this", "that"), "end": EOFError("no more")}[kind]
    return number


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def slow(folder: Path, number: int) -> int:
    (folder / "pid").write_text(str(os.getpid()))
    time.sleep(600)
    return number


def slow_or_failing(folder: Path, number: int) -> int:
    return failing("value", number) if number == 2 else slow(folder, number)


def printing(number: int) -> None:
    print("words on stdout", number, sys.stdin.read())


def results(work: object, num_items: int = 5, num_workers: int = 2, ahead: int = 9) -> list[object]:
    return list(in_workers(work, range(num_items), num_workers, ahead=ahead))  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_workers", "ahead"), [(1, 0), (2, 0), (2, 1), (3, 99)])
def test_results_come_in_the_order_of_the_items(num_workers: int, ahead: int) -> None:
    assert results(squared, 7, num_workers, ahead) == [0, 1, 4, 9, 16, 25, 36]
    assert results(squared, 0, num_workers, ahead) == []


@pytest.mark.parametrize("ahead", [0, 2])
def test_no_more_items_are_begun_than_asked(ahead: int, tmp_path: Path) -> None:
    outcomes = in_workers(functools.partial(begun, tmp_path), range(8), 3, ahead=ahead)
    for number in range(8):
        next(outcomes)
        assert len(list(tmp_path.glob("begun*"))) <= number + 1 + ahead


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("exit", "with exit code 9"),
        ("crash", "by SIGSEGV"),
        ("kill", "by SIGKILL, which is also what a system sends that runs out of memory"),
    ],
)
def test_an_item_that_ends_its_workers_costs_no_other_and_says_how_they_ended(
    how: str, words: str, tmp_path: Path
) -> None:
    found = results(functools.partial(lost, tmp_path, how))
    assert found == [0, Died(words), 2, 3, 4]
    assert (tmp_path / "tries1").read_text() == "x" * MAX_DEATHS


@pytest.mark.parametrize("code", [*range(256), *(-number for number in signal.Signals), -63])
def test_only_a_killed_process_may_have_run_out_of_memory(code: int) -> None:
    assert ("memory" in how_ended(code)) == (code == -signal.SIGKILL)
    assert str(code) in how_ended(code) if code >= 0 else how_ended(code).startswith("by ")


def test_an_item_whose_worker_was_killed_once_has_its_result(tmp_path: Path) -> None:
    assert results(functools.partial(lost, tmp_path, "once")) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("value", (ValueError, "two is wrong")), ("odd", (RuntimeError, "Odd: this and that")), ("end", (EOFError, "no"))],
)
def test_an_exception_is_raised_here_with_its_place_in_the_worker(
    kind: str, expected: tuple[type[Exception], str]
) -> None:
    with pytest.raises(expected[0], match=expected[1]) as caught:
        results(functools.partial(failing, kind))
    assert "in failing" in str(caught.value.__cause__)


def test_an_exception_does_not_wait_for_earlier_items_and_ends_their_workers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="two is wrong"):
        next(in_workers(functools.partial(slow_or_failing, tmp_path), range(1, 3), 2, ahead=1))
    pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not pid or not alive(int(pid))


def test_a_function_that_cannot_be_found_again_is_an_error_at_once() -> None:
    vanished = functools.partial(squared)
    vanished.__dict__["module"] = _unpicklable_there()
    with pytest.raises(ZeroDivisionError):
        results(vanished)


class _unpicklable_there:
    def __reduce__(self) -> tuple[object, tuple[int, int]]:
        return divmod, (1, 0)


def test_a_python_that_does_not_start_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(WorkerError, match=rf"{broken} ended with exit code 3"):
        results(squared)


def test_workers_end_with_the_caller_who_stops_early(tmp_path: Path) -> None:
    outcomes = in_workers(functools.partial(slow, tmp_path), range(2), 1, ahead=1, watch=lambda: _stop(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        next(outcomes)
    assert not alive(int((tmp_path / "pid").read_text()))


def _stop(folder: Path) -> None:
    if (folder / "pid").is_file() and (folder / "pid").read_text():
        raise KeyboardInterrupt


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import functools, pathlib\nfrom tests.shards.test_workers import begun, in_workers\n"
        f"outcomes = in_workers(functools.partial(begun, pathlib.Path({str(tmp_path)!r})), range(9), 2, ahead=0)\n"
        "next(outcomes)\nprint('ready', flush=True)\ninput()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    parent.kill()
    assert parent.stdout.read() == b""  # the workers, which have it too, have ended
    parent.wait()


def test_what_a_worker_prints_and_reads_does_not_meet_its_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    assert results(printing, 2, 1) == [None, None]
    assert capfd.readouterr().out == "words on stdout 0 \nwords on stdout 1 \n"


def test_a_worker_sees_the_path_of_its_caller_and_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    assert results(squared, 2) == [0, 1]
