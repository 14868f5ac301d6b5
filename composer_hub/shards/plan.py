"""The plan of a stage over shards, and the folder in which its results are staged.

In: the inputs of a stage, in order. Out: `STAGING/<plan>/` with these files, readable by every worker:

    plan.json                the stage, its options, the head that it is based on, and one line per shard
    inputs/00003.json        the inputs of a shard, in order
    given/00003/             files that a stage gives a shard, if it does
    private                  data that only workers may read (mode 0600)
    results/00003/           the result of a shard: its files and `manifest.json`, which names them with digests
    running/, failed/        who works on a shard, and why the last attempt failed

A result appears by one rename, so it is there or it is not. The first result of a shard stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from composer_hub import __version__, exits
from composer_hub.named_files import write_whole
from composer_hub.records import canonical_json, stable_id

MANIFEST = "manifest.json"
_BLOCK = 1 << 20
_WORK = re.compile(r"composer_hub(\.\w+)+:\w+")


class ShardError(exits.ComposerError, RuntimeError):
    """A plan or a shard that cannot be used as it is."""


@dataclass(frozen=True)
class Input:
    """A file of a shard, or a range of its bytes or rows."""

    name: str  # a path, or the name of a file of a dataset revision
    digest: str = ""  # of the file or the range when the plan was made; "" if it could not be read then
    num_bytes: int = 0
    start: int = 0
    stop: int | None = None  # None: to the end
    about: Mapping[str, Any] = field(default_factory=dict)  # more facts for the stage, also `dataset` and `path`

    @property
    def path(self) -> Path:
        """Return the file's path on this machine; a job mounts the dataset revisions that `about` names."""
        mounts = json.loads(os.environ.get("COMPOSER_SHARDS_MOUNTS") or "{}")
        mount = mounts.get(self.about.get("dataset"))
        return Path(mount, self.about["path"]) if mount else Path(self.name)


@dataclass(frozen=True)
class ShardLine:
    """A shard as `plan.json` names it."""

    number: int
    num_inputs: int
    num_bytes: int
    digest: str  # of its inputs


@dataclass(frozen=True)
class Plan:
    """Frozen shards of a stage. Its id comes from everything that shapes the results, so not from the head."""

    stage: str
    work: str  # the function that runs a shard, as module:name
    release: str
    options: Mapping[str, Any]
    shards: tuple[ShardLine, ...]
    repo: str = ""
    head: str = ""  # the revision that the version is based on; publishing merges with a newer one

    @property
    def plan_id(self) -> str:
        return stable_id(self.stage, self.work, self.release, self.options, [shard.digest for shard in self.shards])


@dataclass(frozen=True)
class Manifest:
    """The facts of a finished shard about its result."""

    number: int
    files: Mapping[str, list[Any]]  # name -> [bytes, SHA-256]
    counts: Mapping[str, int]
    seconds: float
    peak_mb: float
    where: str


@dataclass(frozen=True)
class Staging:
    """The folder of a plan."""

    folder: Path
    plan: Plan

    @classmethod
    def open(cls, folder: Path) -> Staging:
        """Read the plan of a folder; it is gone after its version was published."""
        try:
            values = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
            shards = tuple(ShardLine(**line) for line in values.pop("shards"))
            plan = Plan(**{name: value for name, value in values.items() if name != "plan_id"}, shards=shards)
        except FileNotFoundError:
            raise exits.NothingToDo(
                f"{folder} has no plan. It was published already, or it is another folder."
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise ShardError(f"{folder / 'plan.json'} is damaged ({error}). Remove {folder} and plan again.") from error
        if plan.release != __version__:
            raise ShardError(
                f"{folder} was planned by composer_hub {plan.release}, and this is {__version__}. Run its shards with "
                "the same release, or plan again."
            )
        return cls(folder, plan)

    def inputs(self, number: int) -> list[Input]:
        """Return the inputs of a shard."""
        path = self.folder / "inputs" / f"{number:05d}.json"
        try:
            return [Input(**values) for values in json.loads(path.read_text(encoding="utf-8"))]
        except FileNotFoundError:
            last = len(self.plan.shards) - 1
            raise exits.UsageError(
                f"{self.folder} has the shards 0 to {last}, so there is no shard {number}."
            ) from None

    def private(self) -> bytes:
        """Return the content of `private`, which only workers may read."""
        return (self.folder / "private").read_bytes()

    def given(self, number: int) -> Path:
        """Return the folder of the files that the stage gave a shard."""
        return self.folder / "given" / f"{number:05d}"

    def result(self, number: int) -> Path:
        """Return the folder of a shard's result."""
        return self.folder / "results" / f"{number:05d}"

    def manifest(self, number: int) -> Manifest | None:
        """Return the manifest of a finished shard."""
        try:
            return Manifest(**json.loads((self.result(number) / MANIFEST).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError):  # a crash of the machine cut it off
            return None

    def done(self) -> set[int]:
        """Return the shards that have a result."""
        names = os.listdir(self.folder / "results") if (self.folder / "results").is_dir() else []
        return {int(name) for name in names if name.isdigit()}

    def missing(self) -> list[int]:
        """Return the shards without a result, in order."""
        done = self.done()
        return [shard.number for shard in self.plan.shards if shard.number not in done]

    def is_whole(self, number: int) -> bool:
        """Return whether a result is as its manifest lists it."""
        manifest = self.manifest(number)
        if manifest is None:
            return False
        folder = self.result(number)
        return all(
            (folder / name).is_file() and file_digest(folder / name) == digest
            for name, (_, digest) in manifest.files.items()
        )

    def drop_result(self, number: int) -> None:
        """Take a damaged result away, so that its shard runs again."""
        gone = self.folder / "results" / f".damaged-{number}-{secrets.token_hex(4)}"
        self.result(number).rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def notes(self, kind: str) -> dict[int, dict[str, Any]]:
        """Return the notes of `running` or `failed`, by shard."""
        found = {}
        for path in sorted((self.folder / kind).glob("*.json")):
            try:
                found[int(path.stem)] = json.loads(path.read_text(encoding="utf-8"))
            except (FileNotFoundError, ValueError):  # removed or replaced meanwhile
                continue
        return found

    def note(self, kind: str, number: int, values: Mapping[str, Any] | None) -> None:
        """Write a note about a shard, or remove it."""
        path = self.folder / kind / f"{number:05d}.json"
        if values is None:
            path.unlink(missing_ok=True)
        elif path.parent.is_dir():
            write_whole(path, json.dumps(values).encode())

    def hold(self) -> IO[bytes]:
        """Keep other runs away from the plan until the returned file is closed or this process ends."""
        try:
            file = (self.folder / "lock").open("wb")
        except FileNotFoundError:
            raise self._gone() from None
        with contextlib.suppress(ImportError):  # without it, two runs at once may do the same work
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.close()
                raise ShardError(
                    f"Another run carries out the plan in {self.folder}. Wait until it has ended; then the same "
                    "command publishes what is new."
                ) from None
        if not (self.folder / "plan.json").is_file():  # removed since, with the lock of the run that removed it
            file.close()
            raise self._gone()
        return file

    def _gone(self) -> ShardError:
        return ShardError(f"Another run has just published the plan in {self.folder}. Run the same command again.")

    def remove(self) -> None:
        """Remove everything; a shard that comes late then finds no plan."""
        gone = self.folder.with_name(f".{self.folder.name}-{secrets.token_hex(6)}")
        with contextlib.suppress(FileNotFoundError):
            self.folder.rename(gone)  # at once, so that no worker writes a note into a folder that is half removed
            shutil.rmtree(gone, ignore_errors=True)


def balanced(inputs: Sequence[Input], num_shards: int) -> list[list[Input]]:
    """Cut ordered inputs into at most `num_shards` runs of about the same number of bytes."""
    total = sum(one.num_bytes + 1 for one in inputs)  # an empty file also counts
    groups: list[list[Input]] = []
    before = 0
    for one in inputs:
        # A shard takes the inputs whose middle is in its part of all bytes.
        part = int((before + one.num_bytes / 2) * num_shards / total)
        while len(groups) <= part:
            groups.append([])
        groups[part].append(one)
        before += one.num_bytes + 1
    return [group for group in groups if group]


def freeze(
    root: Path,
    *,
    stage: str,
    work: str,
    groups: Sequence[Sequence[Input]],
    options: Mapping[str, Any],
    private: bytes = b"",
    given: Path | None = None,
    repo: str = "",
    head: str = "",
) -> Staging:
    """Write a plan below `root` and return it; a plan of the same shards and options is found again.

    `options` and inputs must name everything that shapes the results, also what is in `private` and in `given` (by
    digests). `given` is a folder of `drafted` with a folder of files per shard; it moves into a new plan.
    """
    if not _WORK.fullmatch(work):
        raise ValueError(f"{work!r} is not a function of this package")
    listed = [[asdict(one) for one in group] for group in groups]
    lines = tuple(
        ShardLine(number, len(group), sum(one.num_bytes for one in group), stable_id(listed[number]))
        for number, group in enumerate(groups)
    )
    shape = json.loads(canonical_json(options))
    plan = Plan(stage, work, __version__, shape, lines, repo, head)
    folder = root / plan.plan_id
    if (folder / "plan.json").is_file():
        return Staging.open(folder)
    draft = root / f".{plan.plan_id}-{secrets.token_hex(4)}"
    try:
        for name in ("inputs", "results", "running", "failed"):
            (draft / name).mkdir(parents=True)
        draft.chmod(0o700)  # results hold values that are replaced only later
        for number, group in enumerate(listed):
            (draft / "inputs" / f"{number:05d}.json").write_bytes(_json(group))
        if given:
            given.rename(draft / "given")
        descriptor = os.open(draft / "private", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private)
        (draft / "plan.json").write_bytes(_plan_text(plan))
    except OSError:  # the disk is full
        shutil.rmtree(draft, ignore_errors=True)
        raise
    try:
        draft.rename(folder)
    except OSError:  # another run froze the same plan at the same time
        shutil.rmtree(draft)
    return Staging.open(folder)


@contextlib.contextmanager
def drafted(root: Path) -> Iterator[Path]:
    """Give a folder for the `given` files of a plan; files that were not moved into a plan are removed."""
    folder = root / f".given-{secrets.token_hex(4)}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _plan_text(plan: Plan) -> bytes:
    """Return the plan as JSON with one line per shard."""
    values = {"plan_id": plan.plan_id, **asdict(replace(plan, shards=()))}
    del values["shards"]
    head = json.dumps(values, indent=2, ensure_ascii=False)
    lines = ",\n    ".join(json.dumps(asdict(shard)) for shard in plan.shards)
    return f'{head[:-2]},\n  "shards": [\n    {lines}\n  ]\n}}\n'.encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")


def file_digest(path: Path, start: int = 0, stop: int | None = None) -> str:
    """Return the SHA-256 of a file or of a range of its bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in blocks(file, start, stop):
            digest.update(block)
    return digest.hexdigest()


def blocks(file: Any, start: int, stop: int | None) -> Iterator[bytes]:
    """Yield a range of an open file in pieces."""
    file.seek(start)
    left = None if stop is None else stop - start
    while left is None or left > 0:
        block = file.read(_BLOCK if left is None else min(_BLOCK, left))
        if not block:
            return
        left = None if left is None else left - len(block)
        yield block
