"""A federation: workers that train one adapter and meet only in a repository, without a coordinator.

    federation.json              what all agree on, with the digest of the start
    start.safetensors            the adapter that round 0 starts from
    workers/NAME.json            the run that holds a name
    rounds/3/NAME.safetensors    a worker's delta of round 3
    rounds/3/closed.json         the deltas that count, and the digest that they lead to
    adapter_model.safetensors    the adapter after the last closed round

Every change is one commit on the head that it was decided on; the Hub refuses it if the head has moved. So
exactly one of the workers that close a round wins, no delta comes after that, and no worker overwrites
another's file. The adapter is a function of the files: a worker that was killed, or was away for a day, reads
them and has the same bits as the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from composer_hub import exits
from composer_hub.hub import Add, Destination, Moved
from composer_hub.train.apart.deltas import (
    Delta,
    RefusedDelta,
    Values,
    outer_step,
    read_delta,
    read_values,
    to_bytes,
    values_digest,
    without_outliers,
)
from composer_hub.train.apart.problems import NAME, NAME_WORDS
from composer_hub.train.apart.status import RULES

START, ADAPTER = "start.safetensors", "adapter_model.safetensors"
_DELTA = re.compile(rf"rounds/(\d+)/({NAME.pattern})\.safetensors")
_FIRST_WAIT_S, _MAX_WAIT_S = 0.25, 15.0


class FederationError(exits.ComposerError, RuntimeError):
    """A federation that cannot be joined, or whose files do not fit together."""


@dataclass(frozen=True)
class Rules:
    """The settings that all workers agree on."""

    base: str  # the commit or digest of the model that the adapter belongs to
    num_workers: int  # that a round waits for
    num_rounds: int
    num_steps: int  # per round and worker
    outer_lr: float = 0.7
    outer_momentum: float = 0.9


@dataclass(frozen=True)
class State:
    """The adapter at the start of a round; after the last round, the result."""

    round: int
    values: Values
    velocity: Values = field(repr=False)

    @property
    def digest(self) -> str:
        return values_digest(self.values)


Look = tuple[str, dict[str, Any]]  # a head, and its files
Card = Callable[["Federation", Mapping[str, bytes]], Mapping[str, bytes]]  # the files to be added -> those of the card


class Federation:
    """One worker's view of a federation."""

    def __init__(
        self,
        where: Destination,
        repo: str,
        worker: str,
        run: str,
        *,
        patience_s: float = 3600.0,
        sleep: Callable[[float], Any] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], Any] = print,
        card: Card | None = None,
    ) -> None:
        if not NAME.fullmatch(worker):
            raise FederationError(NAME_WORDS.format(worker))
        self.where, self.repo, self.worker, self.run = where, repo, worker, run
        self.launch = f"{random.SystemRandom().getrandbits(64):016x}"
        self.patience_s, self.sleep, self.clock, self.note, self.card = patience_s, sleep, clock, note, card
        self.rules: Rules | None = None
        self._state: State | None = None

    # ------------------------------------------------------------------------------------------------------- joining

    def join(self, rules: Rules, start: Values, files: Mapping[str, bytes] | None = None) -> State:
        """Found the federation or take its rules and its start, and hold the worker's name; return the open round."""
        self.where.prepare(self.repo, private=True, repo_type="model")
        me = json.dumps({"run": self.run, "launch": self.launch}).encode()
        for head, there in self._looks():
            changes = {f"workers/{self.worker}.json": me}
            if RULES not in there:
                self._check_empty(there)
                about = dataclasses.asdict(rules) | {"start": values_digest(start)}
                changes |= {RULES: _json(about), START: to_bytes(start), ADAPTER: to_bytes(start)} | dict(files or {})
                title = f"{self.worker} founds the federation"
            else:
                self._check_same(rules, start, head)
                self._check_name(head, there)
                title = f"{self.worker} joins"
            if self._commit(changes, title, head):
                break
        self.rules = rules
        return self.state()

    def _check_empty(self, there: Mapping[str, Any]) -> None:
        foreign = sorted(path for path in there if path not in (".gitattributes", "README.md"))
        if foreign:
            raise FederationError(
                f"{self.repo} is no federation: it holds {foreign[0]}. Name another repository, which need not exist."
            )

    def _check_same(self, rules: Rules, start: Values, head: str) -> None:
        theirs, _ = self._agreed(head)
        mine = dataclasses.asdict(rules)
        others = [
            f"{name} is {theirs.get(name)}, here {value}" for name, value in mine.items() if theirs.get(name) != value
        ]
        if others:
            raise FederationError(
                f"{self.repo} has other rules: {'; '.join(others)}. Use its own, or another repository."
            )
        values = self._values(head, START)
        if {name: value.shape for name, value in values.items()} != {n: value.shape for n, value in start.items()}:
            raise FederationError(f"{self.repo} trains an adapter of other shapes. Use the LoRA options of the others.")

    def _check_name(self, head: str, there: Mapping[str, Any]) -> None:
        path = f"workers/{self.worker}.json"
        if path in there and (holder := self._json(head, path)).get("run") != self.run:
            raise FederationError(
                f"{self.repo} already has a worker {self.worker}, of run {holder.get('run')}. Name another --worker, "
                "or continue that run in its folder with --resume true."
            )

    # -------------------------------------------------------------------------------------------------------- rounds

    def deliver(self, state: State, end: Values, facts: Mapping[str, Any] | None = None) -> bool:
        """Send what this worker has learned since `state`; return False if the round was closed before."""
        delta = {name: value - end[name] for name, value in state.values.items()}
        known = {"start": state.digest} | {name: str(value) for name, value in (facts or {}).items()}
        content = to_bytes(delta, known)
        path = f"rounds/{state.round}/{self.worker}.safetensors"
        for head, there in self._looks():
            if f"rounds/{state.round}/closed.json" in there:
                self.note(f"Round {state.round} was closed before this worker was done, so its steps do not count.")
                return False
            self._check_fence(head)
            if path in there or self._commit({path: content}, f"round {state.round}: {self.worker}", head):
                return True
        raise AssertionError("looks end only with a result")

    def has_delivered(self, state: State) -> bool:
        """Return whether this worker's delta of the open round is there."""
        return f"rounds/{state.round}/{self.worker}.safetensors" in self._look()[1]

    def wait(self, state: State, is_ending: Callable[[], bool] = lambda: False) -> State | None:
        """Return the state after the round, closing it if all deltas are there or the time is up; None if ending."""
        assert self.rules is not None
        begun, pause = self.clock(), _FIRST_WAIT_S
        while not is_ending():
            head, there = self._look()
            if f"rounds/{state.round}/closed.json" in there:
                return self.state()
            names = [match[2] for path in there if (match := _DELTA.fullmatch(path)) and int(match[1]) == state.round]
            is_time = self.clock() - begun >= self.patience_s
            if names and (is_time or len(names) >= self.rules.num_workers):
                with contextlib.suppress(Moved):
                    self._close(state, sorted(names), (head, there))
                    return self.state()
            elif pause == _FIRST_WAIT_S:
                self.note(
                    f"Round {state.round}: {len(names)} of {self.rules.num_workers} workers are done. Waiting for the "
                    f"others, at most {self.patience_s / 60:g} minutes."
                )
            self.sleep(pause)
            pause = min(1.5 * pause, _MAX_WAIT_S)
        return None

    def finish(self, state: State, facts: Mapping[str, Any]) -> None:
        """Leave what this worker measured of the result."""
        result = {f"results/{self.worker}.json": _json({"digest": state.digest} | dict(facts))}
        for head, _ in self._looks():
            if self._commit(result | self._card_files(result), f"{self.worker} is done", head):
                return

    def _close(self, state: State, names: list[str], look: Look) -> None:
        assert self.rules is not None
        head, there = look
        largest = 2 * there[START].num_bytes + 65536
        deltas: list[Delta] = []
        refused: dict[str, str] = {}
        for name in names:
            path = f"rounds/{state.round}/{name}.safetensors"
            try:
                if there[path].num_bytes > largest:
                    raise RefusedDelta(f"its file has {there[path].num_bytes:,} bytes")
                deltas.append(read_delta(self._file(head, path), name, state.values))
            except RefusedDelta as error:
                refused[name] = str(error)
        deltas, outliers = without_outliers(deltas)
        refused |= outliers
        after = self._after(state, [delta.values for delta in deltas])
        known = {Path(path).stem for path in there if path.startswith("workers/")}
        closed = {
            "round": state.round,
            "start": state.digest,
            "end": after.digest,
            "deltas": [
                {
                    "worker": delta.worker,
                    "sha256": _sha256(self._file(head, f"rounds/{state.round}/{delta.worker}.safetensors")),
                    "bytes": there[f"rounds/{state.round}/{delta.worker}.safetensors"].num_bytes,
                    "norm": delta.norm,
                }
                | {name: value for name, value in delta.facts.items() if name != "start"}
                for delta in deltas
            ],
            "refused": refused,
            "missing": sorted(known - set(names)),
            "closed_by": self.worker,
        }
        files = {f"rounds/{state.round}/closed.json": _json(closed), ADAPTER: to_bytes(after.values)}
        files |= self._card_files(files)
        title = f"round {state.round} closed: {', '.join(delta.worker for delta in deltas) or 'no delta counts'}"
        self.where.commit(
            self.repo,
            [Add.of(path, content) for path, content in files.items()],
            title=title,
            body="\n".join(f"{name} is refused: {reason}." for name, reason in refused.items()),
            parent=head,
            repo_type="model",
        )

    def _card_files(self, fresh: Mapping[str, bytes]) -> dict[str, bytes]:
        return dict(self.card(self, fresh)) if self.card is not None else {}

    def _after(self, state: State, deltas: list[Values]) -> State:
        assert self.rules is not None
        velocity = dict(state.velocity)
        values = outer_step(state.values, velocity, deltas, lr=self.rules.outer_lr, momentum=self.rules.outer_momentum)
        return State(state.round + 1, values, velocity)

    # ------------------------------------------------------------------------------------------------- reading files

    def state(self) -> State:
        """Return the state after the last closed round, from the files alone."""
        head, there = self._look()
        if self._state is None:
            values = self._values(head, START)
            if values_digest(values) != self._agreed(head)[1]:
                raise FederationError(
                    f"{self.repo}/{START} is not the start that {RULES} names. Found another federation."
                )
            self._state = State(0, values, {})
        state = self._state
        while (path := f"rounds/{state.round}/closed.json") in there:
            closed = self._json(head, path)
            try:
                refused, end = dict(closed["refused"]), str(closed["end"])
                listed = [(str(one["worker"]), one["sha256"]) for one in closed["deltas"]]
            except (KeyError, TypeError, ValueError) as error:
                raise FederationError(f"{self.repo}/{path} lists no deltas. Restore it from the history.") from error
            if self.worker in refused:
                self.note(f"Round {state.round}: this worker's delta was refused: {refused[self.worker]}.")
            after = self._after(state, [self._counted(head, state, *one) for one in listed])
            if after.digest != end:
                raise FederationError(
                    f"The files of round {state.round} of {self.repo} lead to {after.digest[:12]}, but {path} says "
                    f"{end[:12]}. A file was changed afterwards; restore it from the history."
                )
            self._state = state = after
        return state

    def _counted(self, head: str, state: State, worker: str, sha256: str) -> Values:
        path = f"rounds/{state.round}/{worker}.safetensors"
        file = self._file(head, path)
        try:
            if _sha256(file) == sha256:
                return read_delta(file, worker, state.values).values
        except RefusedDelta:
            pass
        raise FederationError(f"{self.repo}/{path} is not the file that was counted. Restore it from the history.")

    def _check_fence(self, head: str) -> None:
        holder = self._json(head, f"workers/{self.worker}.json")
        if holder.get("launch") != self.launch:
            raise FederationError(
                f"Another process has taken the name {self.worker} in {self.repo}, with the same run. Only the newest "
                "one may send; this one ends."
            )

    def _look(self) -> Look:
        head = self.where.resolve(self.repo, "main", "model")
        return (head, dict(self.where.files(self.repo, head, "model"))) if head else ("", {})

    def _looks(self) -> Iterator[Look]:
        """Yield the current head repeatedly, so that a worker that lost a race can decide again."""
        while True:
            yield self._look()
            self.sleep(random.random())

    def _commit(self, files: Mapping[str, bytes], title: str, head: str) -> bool:
        changes = [Add.of(path, content) for path, content in files.items()]
        try:
            self.where.commit(self.repo, changes, title=title, body="", parent=head or None, repo_type="model")
        except Moved:
            return False
        return True

    def _file(self, head: str, path: str) -> Path:
        file = self.where.fetch(self.repo, head, path, "model")
        if file is None:
            raise FederationError(f"{self.repo} has lost {path}. Restore it from the history.")
        return file

    def _json(self, head: str, path: str) -> dict[str, Any]:
        try:
            values = json.loads(self._file(head, path).read_bytes())
        except ValueError as error:
            raise FederationError(f"{self.repo}/{path} is not JSON. Restore it from the history.") from error
        if not isinstance(values, dict):
            raise FederationError(f"{self.repo}/{path} holds no object. Restore it from the history.")
        return values

    def _values(self, head: str, path: str) -> Values:
        try:
            return {
                name: np.asarray(value, np.float32) for name, value in read_values(self._file(head, path))[0].items()
            }
        except (ValueError, TypeError) as error:
            raise FederationError(f"{self.repo}/{path} cannot be read. Restore it from the history.") from error

    def _agreed(self, head: str) -> tuple[dict[str, Any], str]:
        values = self._json(head, RULES)
        return values, str(values.pop("start", ""))


def _json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, sort_keys=True) + "\n").encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
