"""Dollars per pair: plain AsyncInferenceClient with gather against lanes and the cascade, on the bundled sessions.

The server's own bill is what counts. Plain gather asks all teachers about all steps, as `--order all` does, so both
give the same answers and the same pairs; the cascade asks fewer.
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from importlib import resources
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.replay import gathered
from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.reading import Reading
from composer_hub.money import NANO
from composer_hub.pairs.consensus import build_pairs
from composer_hub.records import Trace
from composer_hub.replay.collecting import collect
from composer_hub.replay.fake import SCRIPTED, TeacherServer, oracle_of, serving
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from composer_hub.replay.teachers import Teacher, fetch_models, resolve


def teachers_at(url: str) -> list[Teacher]:
    specs = [{"at": f"{url}#{policy.name}", "cache_key": "session_id", "max_tokens": 200} for policy in SCRIPTED]
    return resolve(specs, list_models=fetch_models, environ={})


def replayed(traces: list[Trace], policy: str) -> tuple[int, int]:
    """Return the server's bill in nano-dollars and the pairs of a replay in lanes."""
    server = TeacherServer(oracle=oracle_of(traces), min_cached_tokens=64)
    options = ReplayOptions(order=policy, audit=0, repeat=0, own_endpoint=True)
    votes = defaultdict(list)
    with (
        serving(server) as url,
        tempfile.TemporaryDirectory() as folder,
        Ledger(Path(folder) / "ledger.sqlite", cap=100 * NANO) as ledger,
    ):
        for vote in collect(traces, teachers_at(url), ledger, options):
            votes[vote.trace_id].append(vote)
    return server.billed, sum(len(build_pairs(trace, votes[trace.trace_id])[0]) for trace in traces)


def main() -> None:
    sessions = str(resources.files("composer_hub") / "demo/sessions")
    traces = [session.trace for session in Reading([sessions], ReadOptions(transform=Preparation(None)))]
    server = TeacherServer(oracle=oracle_of(traces), min_cached_tokens=64)
    with serving(server) as url:
        for teacher in teachers_at(url):
            gathered(traces, teacher)
    in_order, all_pairs = replayed(traces, "all")
    cascade, cascade_pairs = replayed(traces, "cascade")
    print(f"{'method':<34}{'$':>10}{'pairs':>7}{'$ per pair':>10}")
    for way, bill, pairs in (
        ("gather, all teachers", server.billed, all_pairs),
        ("lanes, --order all", in_order, all_pairs),
        ("lanes, --order cascade", cascade, cascade_pairs),
    ):
        print(f"{way:<34}{bill / NANO:>10.4f}{pairs:>7}{bill / NANO / max(pairs, 1):>10.4f}")


if __name__ == "__main__":
    main()
