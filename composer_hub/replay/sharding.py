"""A replay run over shards: workers anywhere ask about a part of the traces, each under a lease of the cap.

A shard is a range of bytes of the spooled traces. Its ledger is in the plan's folder, so a worker that died continues
where it ended. What finished shards did not use goes to the others, until all are done or the cap is used. The votes
are those of one process, in its order, and the run's ledger ends with all questions, requests and answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from composer_hub import exits
from composer_hub.records import Trace, Vote, from_row, to_row
from composer_hub.replay.leases import grant, shares, take_back
from composer_hub.replay.ledger import CapReached, Ledger
from composer_hub.shards import Input, ShardError, Sharding, Staging, balanced, carry_out, freeze
from composer_hub.shards.plan import file_digest

if TYPE_CHECKING:
    from composer_hub.replay.collect import ReplayReport
    from composer_hub.replay.planning import ReplayPlan

VOTES, REPORT = "votes.jsonl", "report.pickle"


def collect_over_shards(
    traces: Iterable[Trace], planned: ReplayPlan, ledger: Ledger, sharding: Sharding, report: ReplayReport
) -> Iterator[Vote]:
    """Ask the planned teachers in shards and yield the votes; raise `Stopped` if the cap does not pay for all."""
    spool, inputs = _spooled(traces, sharding.root)
    groups = [[_joined(spool, group, number)] for number, group in enumerate(balanced(inputs, sharding.num_shards))]
    private = pickle.dumps((planned.panel, planned.options))
    staging = freeze(
        sharding.root,
        stage="replay",
        work="composer_hub.replay.shard_work:ask",
        groups=groups,
        options={"asked": hashlib.sha256(private).hexdigest()},
        private=private,
    )
    with contextlib.closing(staging.hold()):
        _carry_out(staging, sharding, ledger)
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
        spool.unlink(missing_ok=True)


def _carry_out(staging: Staging, sharding: Sharding, ledger: Ledger) -> None:
    """Run what is missing, in rounds: what finished shards did not use is leased to the others."""
    paths = [ledger_of(staging, shard.number) for shard in staging.plan.shards]
    before = -1
    while True:
        for path in paths:
            take_back(ledger, path)
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
            for path in paths:
                take_back(ledger, path)


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
    return staging.folder / "ledgers" / f"{number:05d}.sqlite"


def _spooled(traces: Iterable[Trace], root: Path) -> tuple[Path, list[Input]]:
    """Write the traces as lines where every worker sees them; the same traces give the same file."""
    draft, digest, inputs, start = root / f".traces-{secrets.token_hex(4)}", hashlib.sha256(), list[Input](), 0
    with draft.open("wb") as file:
        for trace in traces:
            line = orjson.dumps(to_row(trace)) + b"\n"
            file.write(line)
            digest.update(line)
            about = {"trace_id": trace.trace_id}
            inputs.append(Input("", num_bytes=len(line), start=start, stop=start + len(line), about=about))
            start += len(line)
    return draft.replace(root / f"traces-{digest.hexdigest()[:16]}.jsonl"), inputs


def _joined(spool: Path, group: Sequence[Input], number: int) -> Input:
    start, stop = group[0].start, group[-1].stop or 0
    about: dict[str, Any] = {"shard": number, "trace_ids": [one.about["trace_id"] for one in group]}
    return Input(str(spool), file_digest(spool, start, stop), stop - start, start, stop, about)
