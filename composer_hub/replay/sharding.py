"""A replay run over shards: workers anywhere ask about a part of the traces, each under a lease of the cap.

A shard is given its traces and a ledger, in the plan's folder, so a worker that died continues where it ended. What
finished shards did not use goes to the others, until all are done or the cap is used. The votes are those of one
process, in its order, and the run's ledger ends with all questions, requests and answers. A job of the Hub works on a
copy of the ledger; if it does not send the copy back, its whole lease counts as spent.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from composer_hub import exits
from composer_hub.records import Trace, Vote, from_row, to_row
from composer_hub.replay.leases import grant, shares, take_back, write_off
from composer_hub.replay.ledger import CapReached, Ledger
from composer_hub.shards import Input, ShardError, Sharding, Staging, balanced, carry_out, freeze
from composer_hub.shards.plan import drafted, file_digest

if TYPE_CHECKING:
    from composer_hub.replay.collect import ReplayReport
    from composer_hub.replay.planning import ReplayPlan

VOTES, REPORT = "votes.jsonl", "report.pickle"
TRACES, LEDGER = "traces.jsonl", "ledger.sqlite"


def collect_over_shards(
    traces: Iterable[Trace], planned: ReplayPlan, ledger: Ledger, sharding: Sharding, report: ReplayReport
) -> Iterator[Vote]:
    """Ask the planned teachers in shards and yield the votes; raise `Stopped` if the cap does not pay for all."""
    with drafted(sharding.root) as given:
        groups = _write_given(traces, sharding.num_shards, given)
        private = pickle.dumps((planned.panel, planned.options))
        staging = freeze(
            sharding.root,
            stage="replay",
            work="composer_hub.replay.shard_work:ask",
            groups=groups,
            options={"asked": hashlib.sha256(private).hexdigest()},
            private=private,
            given=given,
            returned=[LEDGER],
            variables=sorted({teacher.key_env for teacher in planned.panel if teacher.key_env}),
        )
    with contextlib.closing(staging.hold()):
        _carry_out(staging, sharding, ledger, planned.panel[0].name)
        for shard in staging.plan.shards:
            folder = staging.result(shard.number)
            theirs: ReplayReport = pickle.loads((folder / REPORT).read_bytes())
            report.tally += theirs.tally
            report.experience += theirs.experience
            for name in ("num_traces", "num_steps", "num_pairs", "num_asked", "num_requests", "spent", "prompt_tokens",
                         "cached_tokens"):  # fmt: skip
                added = getattr(report.progress, name) + getattr(theirs.progress, name)
                setattr(report.progress, name, added)
            for line in (folder / VOTES).read_bytes().splitlines():
                yield from_row(Vote, orjson.loads(line))
        staging.remove()


def _carry_out(staging: Staging, sharding: Sharding, ledger: Ledger, teacher: str) -> None:
    """Run what is missing, in rounds: what finished shards did not use is leased to the others."""
    paths = [ledger_of(staging, shard.number) for shard in staging.plan.shards]

    def take_all_back() -> None:
        for number in staging.notes("lent"):  # no job will return it: it counts as spent, by the first teacher
            (one,) = staging.inputs(number)
            write_off(paths[number], teacher, one.about["trace_ids"][0])
            staging.note("lent", number, None)
        for path in paths:
            take_back(ledger, path)

    before = -1
    while True:
        take_all_back()
        missing, money = staging.missing(), ledger.budget()
        if missing and money.committed == before:
            raise _stopped(staging, missing, ledger)
        before = money.committed
        parts = shares(max(0, money.left), [staging.plan.shards[number].num_bytes for number in missing])
        for number, part in zip(missing, parts, strict=True):
            (one,) = staging.inputs(number)
            grant(ledger, paths[number], part, one.about["trace_ids"])
        try:
            carry_out(staging, sharding)
            return
        except ShardError:
            if not all(_reached_its_lease(staging, number) for number in staging.missing()):
                raise
        finally:
            take_all_back()


def _stopped(staging: Staging, missing: Sequence[int], ledger: Ledger) -> exits.Stopped:
    return CapReached(
        f"The cap does not pay for {len(missing)} of {len(staging.plan.shards)} shards ({ledger.budget()}). "
        "To continue, run the same command with a higher --max-usd and --change-cap. Paid answers are kept.",
        later=False,
    )


def _reached_its_lease(staging: Staging, number: int) -> bool:
    return staging.notes("failed").get(number, {}).get("error", "").startswith(CapReached.__name__)


def ledger_of(staging: Staging, number: int) -> Path:
    """Return the ledger of a shard."""
    return staging.given(number) / LEDGER


def _write_given(traces: Iterable[Trace], num_shards: int, given: Path) -> list[list[Input]]:
    """Write the traces of each shard as lines into a folder of its own; the same traces give the same inputs."""
    sizes, spool = list[Input](), given / "all"
    with spool.open("wb") as file:
        for trace in traces:
            size = file.write(orjson.dumps(to_row(trace)) + b"\n")
            sizes.append(Input(trace.trace_id, num_bytes=size))
    groups = []
    with spool.open("rb") as file:
        for number, group in enumerate(balanced(sizes, num_shards)):
            path = given / f"{number:05d}" / TRACES
            path.parent.mkdir()
            with path.open("wb") as part:
                part.writelines(itertools.islice(file, len(group)))
            about = {"shard": number, "trace_ids": [one.name for one in group], "anywhere": True}
            groups.append([Input(TRACES, file_digest(path), path.stat().st_size, about=about)])
    spool.unlink()
    return groups
