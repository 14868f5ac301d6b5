"""Run the shards of a plan: one shard, all that are missing with an executor, and the state of all.

An executor is a function that gets the plan, the missing shards, and `watch`, which it calls from time to time. It
returns when nothing runs any more. It need not report anything: only results count.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import secrets
import shlex
import shutil
import socket
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from composer_hub import exits
from composer_hub.shards.plan import MANIFEST, Input, Manifest, ShardError, Staging, file_digest, freeze

Work = Callable[[Staging, Sequence[Input], Path], Mapping[str, int]]
"""Writes the result of a shard into an empty folder and returns counts. It depends on nothing but the plan."""
Executor = Callable[[Staging, Sequence[int], Callable[[], None]], None]
BEAT_SECONDS = 10.0
"""A worker renews its note this often; a note three times as old belongs to a worker that died."""
STRAGGLER = 3.0
"""A shard that runs this many times as long as the median is named."""
_MAX_NAMED = 5


@dataclass(frozen=True)
class ShardProgress:
    """How far a plan is."""

    num_shards: int
    num_done: int
    num_failed: int
    running: Mapping[int, float]  # seconds by shard
    stragglers: Sequence[int] = ()


@dataclass(frozen=True)
class Sharding:
    """The executor and options of a run over shards."""

    root: Path  # folder for plans and results; every worker must see it
    executor: Executor
    num_shards: int
    on_progress: Callable[[ShardProgress], None] = lambda progress: None


class Plans:
    """The plans that one run of a stage carries out, one after the other, and holds until it has published."""

    def __init__(self) -> None:
        self.held: list[tuple[Staging, IO[bytes]]] = []  # with the file that keeps other runs away

    def carry_out(
        self, sharding: Sharding, stage: str, work: str, groups: Sequence[Sequence[Input]], **plan: Any
    ) -> Staging:
        """Freeze a plan and run its shards (`freeze` has the arguments); raise ShardError if one has no result."""
        staging = freeze(sharding.root, stage=stage, work=work, groups=groups, **plan)
        self.held.append((staging, staging.hold()))
        try:
            carry_out(staging, sharding)
        except BaseException:
            for _, lock in self.held:  # the next run may begin although this object lives on
                lock.close()
            raise
        return staging

    @contextlib.contextmanager
    def until_published(self) -> Iterator[None]:
        """Remove the plans when the block has published, or found nothing to do."""
        try:
            yield
        except exits.NothingToDo:
            self.forget()
            raise
        self.forget()

    def forget(self) -> None:
        """Remove the plans and their results."""
        for staging, lock in self.held:
            staging.remove()
            lock.close()


def run_shard(staging: Staging, number: int, work: Work | None = None) -> Manifest:
    """Run one shard and put its result in place; a shard that has a result stays as it is."""
    if (known := staging.manifest(number)) is not None:
        return known
    inputs = staging.inputs(number)
    draft = staging.folder / "results" / f".{number:05d}-{secrets.token_hex(6)}"
    started = time.time()
    try:
        draft.mkdir()
        with _noted(staging, number):
            counts = (work or _work_of(staging.plan.work))(staging, inputs, draft)
        manifest = Manifest(number, _digests(draft), dict(counts), time.time() - started, peak_mb(), _here())
        (draft / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1), encoding="utf-8")
        with contextlib.suppress(OSError):  # another worker was faster; its result is the same
            draft.rename(staging.result(number))
        staging.note("failed", number, None)
    except FileNotFoundError:
        if not staging.folder.is_dir():
            raise exits.NothingToDo(f"Shard {number} came late: its version was published already.") from None
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return manifest


def attempt(staging: Staging, number: int) -> bool:
    """Run one shard in a worker; a failure becomes a note, and the worker lives on for the next shard."""
    try:
        run_shard(staging, number)
    except exits.NothingToDo:
        return True
    except Exception as error:  # noqa: BLE001 - the note names it, and other shards go on
        note = {"error": f"{type(error).__name__}: {error}", "where": _here(), "trace": traceback.format_exc()}
        staging.note("failed", number, note)
        return False
    return True


def here(staging: Staging, numbers: Sequence[int], watch: Callable[[], None]) -> None:
    """Run shards one after the other in this process."""
    for number in numbers:
        attempt(staging, number)
        watch()


def carry_out(staging: Staging, sharding: Sharding) -> None:
    """Run what is missing and check every result; raise ShardError if a shard has none at the end."""
    if not staging.plan.shards:
        return
    for number in staging.done():
        if not staging.is_whole(number):
            staging.drop_result(number)
    missing = staging.missing()
    for number in missing:
        staging.note("failed", number, None)
    started = time.time()
    if missing:
        sharding.executor(staging, missing, lambda: sharding.on_progress(progress_of(staging, started)))
    sharding.on_progress(progress_of(staging, started))
    broken = [number for number in staging.done() if number in set(missing) and not staging.is_whole(number)]
    for number in broken:
        staging.drop_result(number)
    if lost := staging.missing():
        raise _unfinished(staging, lost)


def progress_of(staging: Staging, started: float = 0.0) -> ShardProgress:
    """Look at the folder of a plan; notes from before `started` are of another run."""
    now, done = time.time(), staging.done()
    notes = {number: note for number, note in staging.notes("running").items() if number not in done}
    running = {n: now - note["since"] for n, note in notes.items() if now - note["beat"] < 3 * BEAT_SECONDS}
    manifests = [manifest for number in sorted(done)[:200] if (manifest := staging.manifest(number))]
    usual = statistics.median([manifest.seconds for manifest in manifests]) if manifests else None
    slow = [n for n, seconds in running.items() if usual is not None and seconds > max(30.0, STRAGGLER * usual)]
    return ShardProgress(len(staging.plan.shards), len(done), len(staging.notes("failed")), running, slow)


def status(staging: Staging) -> list[dict[str, Any]]:
    """Return one row per shard: its size, state, time, memory and place."""
    failed, running = staging.notes("failed"), progress_of(staging).running
    rows = []
    for shard in staging.plan.shards:
        manifest = staging.manifest(shard.number)
        state = "missing"
        if manifest:
            state = "done"
        elif shard.number in running:
            state = "running"
        elif shard.number in failed:
            state = "failed"
        rows.append(
            {
                "shard": shard.number,
                "state": state,
                "inputs": shard.num_inputs,
                "MB": round(shard.num_bytes / 1e6, 1),
                "seconds": round(manifest.seconds if manifest else running.get(shard.number, 0.0), 1),
                "peak_mb": round(manifest.peak_mb) if manifest else None,
                "where": manifest.where if manifest else failed.get(shard.number, {}).get("where", ""),
                "error": "" if manifest else failed.get(shard.number, {}).get("error", ""),
            }
        )
    return rows


def rerun_command(staging: Staging, numbers: Sequence[int]) -> str:
    """Return the command that runs shards again."""
    return f"composer-hub shards run {shlex.quote(str(staging.folder))} {' '.join(map(str, numbers))}"


def _unfinished(staging: Staging, lost: Sequence[int]) -> ShardError:
    failed = staging.notes("failed")
    lines = [f"shard {n}: {failed[n]['error'] if n in failed else 'its worker ended'}" for n in lost[:_MAX_NAMED]]
    more = f"\n  ... and {len(lost) - _MAX_NAMED} more" if len(lost) > _MAX_NAMED else ""
    listed = "\n  ".join(lines) + more
    return ShardError(
        f"{len(lost)} of {len(staging.plan.shards)} shards have no result, so nothing was published.\n  {listed}\n"
        f"Run the same command again for what is missing, or these shards alone: {rerun_command(staging, lost)}"
    )


def _work_of(name: str) -> Work:
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def _digests(folder: Path) -> dict[str, list[Any]]:
    return {path.name: [path.stat().st_size, file_digest(path)] for path in sorted(folder.iterdir())}


@contextlib.contextmanager
def _noted(staging: Staging, number: int) -> Iterator[None]:
    """Note who runs a shard while it runs."""
    since = time.time()

    def beat() -> None:
        with contextlib.suppress(OSError):
            staging.note("running", number, {"since": since, "beat": time.time(), "where": _here()})

    try:
        with repeated(beat, BEAT_SECONDS):
            yield
    finally:
        with contextlib.suppress(OSError):
            staging.note("running", number, None)


@contextlib.contextmanager
def repeated(action: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `action` in a thread, at once and then every few seconds, while the block runs."""
    ended = threading.Event()

    def repeat() -> None:
        action()
        while not ended.wait(seconds):
            action()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _here() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def peak_mb() -> float:
    """Return the most memory that this process has held, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6
