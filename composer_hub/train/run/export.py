"""Every rollout as a `Trace`, so that the training data of a run can be published and replayed.

In: the trainer's state after each generation. Out: JSON lines in `rollouts/`, one series of files per process, and
from them traces whose steps name their error sites and hints. `provenance` holds the facts that only a rollout has
(token ids, tool mask, log-probs, rewards, advantage, policy step), with the same keys in every row.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_hub.environments.guard import own_environment
from composer_hub.harnesses import family_of
from composer_hub.records import Hint, Trace, from_row, stable_id, to_row
from composer_hub.train.rollouts import Rollout, message_of

if TYPE_CHECKING:
    from composer_hub.hub import Destination, Parent, Published, Version

ROLLOUTS_PER_FILE = 2_000


@dataclass(frozen=True, slots=True)
class Scored:
    """The facts of one rollout beside its tokens."""

    prompt: Sequence[Mapping[str, Any]]
    policy_step: int
    place: int  # among the rollouts of its step, over all ranks
    rewards: Mapping[str, float | None]
    advantage: float | None
    logps: Sequence[float | None] = ()  # of the completion's sampled tokens, if known
    logps_source: str = ""  # sampling or old_policy
    environment: str = ""
    episode: Mapping[str, Any] = field(default_factory=dict)  # the environment's report on it
    hints: Mapping[int, Hint] = field(default_factory=dict)  # turn -> the hint the teacher read


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The facts that all rollouts of a run share."""

    run_id: str
    model: str
    model_revision: str
    tools: tuple[dict[str, Any], ...] = ()
    license: str = ""
    tokenizer: str = ""  # digest of the tokenizer that the token ids belong to
    family: str = ""


def to_trace(rollout: Rollout, scored: Scored, run: RunFacts) -> Trace:
    """Return one rollout with its prompt, its identity and the hints that the teacher read."""
    prompt = tuple(message_of(message) for message in scored.prompt)
    trace_id = stable_id(run.run_id, scored.policy_step, scored.place)
    family = run.family or family_of(run.model)
    num_prompt = len(prompt)
    steps = (
        replace(
            step,
            step_id=stable_id(trace_id, step.index),
            action=num_prompt + step.action,
            prompt=((0, num_prompt + step.action),),
            results=tuple(num_prompt + place for place in step.results),
            model=run.model,
            family=family,
            hints=(scored.hints[step.index],) if step.index in scored.hints else (),
        )
        for step in rollout.trace.steps
    )
    return replace(
        rollout.trace,
        trace_id=trace_id,
        session_id=f"{run.run_id}-{scored.policy_step}-{scored.place}",
        messages=(*prompt, *rollout.trace.messages),
        steps=tuple(steps),
        tools=run.tools,
        model=run.model,
        family=family,
        license=run.license,
        provenance=_provenance(rollout, scored, run),
    )


def _provenance(rollout: Rollout, scored: Scored, run: RunFacts) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "policy": run.model,
        "policy_revision": run.model_revision,
        "policy_step": scored.policy_step,
        "tokenizer": run.tokenizer,
        "environment": scored.environment,
        "episode": dict(scored.episode),
        "rewards": dict(scored.rewards),
        "advantage": scored.advantage,
        "prompt_ids": list(rollout.prompt_ids),
        "completion_ids": list(rollout.completion_ids),
        "tool_mask": list(rollout.tool_mask),
        "logps": list(scored.logps),
        "logps_source": scored.logps_source,
        "turns": [list(span) for span, _ in zip(rollout.spans, rollout.trace.steps, strict=False)],
        "writers": [hint.writer for hint in scored.hints.values()],
    }


class RolloutFile:
    """The rollouts of one process, appended as they happen; a resumed run repeats the ids of repeated steps."""

    def __init__(self, folder: Path, run: RunFacts, *, environment: str = ""):
        self.folder, self.run, self.environment = folder, run, environment
        self.num_written = 0
        self._step, self._batch = -1, 0  # several generation batches may fall into one step

    def add(self, trainer: Any, inputs: Sequence[Mapping[str, Any]], output: Mapping[str, Any]) -> None:
        """Append the rollouts that the trainer has just scored."""
        if not trainer.last_rollouts:
            return
        self.run = self.run if self.run.tools else _with_tools(self.run, trainer)
        rank, num_rows = trainer.accelerator.process_index, len(trainer.last_rollouts)
        step = trainer.state.global_step
        self._step, self._batch = step, self._batch + 1 if step == self._step else 0
        first = (self._batch * trainer.accelerator.num_processes + rank) * num_rows
        advantages = output["advantages"].tolist()
        logps, source = _logps(output)
        rewards = trainer.own_rewards()
        hints = _hints(trainer)
        rows = []
        for row, (rollout, given) in enumerate(zip(trainer.last_rollouts, inputs, strict=True)):
            scored = Scored(
                prompt=_as_messages(given["prompt"]),
                policy_step=step,
                place=first + row,
                rewards=rewards[row],
                advantage=advantages[row] if isinstance(advantages[row], float) else None,
                # vLLM cannot score every token, and JSON has no NaN.
                logps=[
                    None if math.isnan(value) else round(value, 5)
                    for value in (logps[row] if logps else ())[: len(rollout.completion_ids)]
                ],
                logps_source=source,
                environment=str(given.get("environment") or self.environment),
                episode=_episode(trainer, row),
                hints=hints.get(row, {}),
            )
            rows.append(to_row(to_trace(rollout, scored, self.run)))
        self.write(rank, rows)

    def write(self, rank: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows of traces to this rank's files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.num_written:
            # A resumed run continues its last file: later rows replace earlier ones.
            last = max((path.stem for path in self.folder.glob(f"rank{rank:03d}-*.jsonl")), default="-0")
            self.num_written = int(last.rsplit("-", 1)[1]) * ROLLOUTS_PER_FILE
        path = self.folder / f"rank{rank:03d}-{self.num_written // ROLLOUTS_PER_FILE:05d}.jsonl"
        # Not sorted: the order of a call's arguments is what chat templates render.
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        with path.open("a", encoding="utf-8") as file:
            # If the run was killed in the middle of a line, start a new one.
            file.write(("\n" if _is_torn(path) else "") + "".join(lines))
        self.num_written += len(rows)


@dataclass(frozen=True, slots=True)
class _Line:
    """The place of a rollout's last row, with its counts."""

    policy_step: int
    trace_id: str
    path: Path
    offset: int
    is_repeated: bool  # it replaces an earlier row
    counts: tuple[int, ...]  # of steps, error sites and hints


def read_rollouts(folder: Path, report: Counter[str] | None = None) -> Iterator[Trace]:
    """Yield the exported traces in order of policy step; if a step was repeated, only its later traces."""
    counts = report if report is not None else Counter()
    return _traces(_listed(folder, counts))


def _listed(folder: Path, counts: Counter[str]) -> list[_Line]:
    last: dict[str, _Line] = {}
    for path in sorted(folder.glob("rank*.jsonl")):
        for offset, row in _lines(path, counts):
            id, steps = row["trace_id"], row["steps"]
            nums = (len(steps), *(sum(len(step[name]) for step in steps) for name in ("error_sites", "hints")))
            counts["replaced"] += id in last
            last[id] = _Line(row["provenance"]["policy_step"], id, path, offset, id in last, nums)
    counts["rollouts"] += len(last)
    for line in last.values():
        counts.update(dict(zip(("steps", "error_sites", "hints"), line.counts, strict=True)))
    return sorted(last.values(), key=lambda line: (line.policy_step, line.trace_id))


def _traces(lines: Iterable[_Line]) -> Iterator[Trace]:
    for line in lines:
        with line.path.open("rb") as file:
            file.seek(line.offset)
            yield from_row(Trace, json.loads(file.readline()))


def _lines(path: Path, counts: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    offset = 0
    with path.open("rb") as file:
        for line in file:
            try:
                if line.strip():
                    yield offset, json.loads(line)
            except ValueError:
                counts["torn"] += 1
            offset += len(line)


def _is_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"


def _with_tools(run: RunFacts, trainer: Any) -> RunFacts:
    return replace(run, tools=tuple(trainer.hinter.tools))


def _logps(output: Mapping[str, Any]) -> tuple[list[list[float]], str]:
    for key, source in (("sampling_per_token_logps", "sampling"), ("old_per_token_logps", "old_policy")):
        if output.get(key) is not None:
            return output[key].tolist(), source
    return [], ""


def _hints(trainer: Any) -> dict[int, dict[int, Hint]]:
    sites = getattr(trainer, "last_sites", ())
    return {row: {site.step: site.hint for site in found} for row, found in enumerate(sites)}


def _episode(trainer: Any, row: int) -> Mapping[str, Any]:
    environments = getattr(trainer, "environments", None) or ()
    own = own_environment(environments[row]) if row < len(environments) else None
    return own._facts() if own else {}


def _as_messages(prompt: Any) -> Sequence[Mapping[str, Any]]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


# --------------------------------------------------------------------------------------------------------- publishing


def publish_rollouts(
    where: Destination,
    repo: str,
    folder: Path,
    *,
    run_id: str,
    license: str,
    parents: Sequence[Parent] = (),
    public: bool = False,
) -> Published | None:
    """Publish the rollouts of a run as the next version of a trace dataset; the same rows again are a no-op.

    Rollouts that the run has published stay in their files; the others follow in new ones.
    """
    from composer_hub.hub import Card, Draft, Lineage, NothingToPublish, PublishOptions, update
    from composer_hub.ingest.dataset import trace_tables

    counts: Counter[str] = Counter()
    lines = _listed(folder, counts)
    if not lines:
        return None
    card = Card(
        "traces",
        pretty_name=f"{repo.split('/')[1]}: rollouts of a training run",
        license=license,
        tags=("agents", "tool-use", "traces", "rollouts"),
        counts={name: counts[name] for name in ("rollouts", "steps", "error_sites", "hints")},
        dropped={name: counts[name] for name in ("torn", "replaced") if counts[name]},
        holes={
            "origin": f"Rollouts of a model in an environment, as training run `{run_id}` sampled and scored them.",
            "redaction": _REDACTION_NOTE,
        },
    )
    lineage = Lineage(parents=tuple(parents), sources={"run_id": run_id})

    def make(before: Version | None) -> Draft:
        adds = before is not None and before.manifest["sources"].get("run_id") == run_id
        known = before.ids("traces") if before is not None and adds else set()
        new = [line for line in lines if line.is_repeated or line.trace_id not in known]
        return Draft(trace_tables(lambda: _traces(new)), card, lineage, f"Rollouts of run {run_id}", adds=adds)

    try:
        return update(where, repo, make, options=PublishOptions(public=public))
    except NothingToPublish:
        return None


_REDACTION_NOTE = (
    "These are rollouts of a model in an environment, not sessions of people, and they were not redacted. "
    "`composer-hub ingest` redacts them for replay by teachers on other machines. `provenance` holds token ids, tool "
    "mask, log-probs, rewards, advantage and policy step of each rollout."
)
