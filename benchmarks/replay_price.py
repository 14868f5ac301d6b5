"""What replay promises and keeps: dollars and pairs by order, under caps, against the plan and the server's bill.

    python benchmarks/replay_price.py [--traces 12] [--steps 25] [--base 3] [--pilot 20 60] [--samples 5]
                                      [--sessions FOLDER] [--caps]

With --sessions, the traces are those of the sessions in a folder, under faults, and the money is checked: the report
of the pairs and the plan after a pilot against the server's bill, for every order, in full and under caps. With --caps,
only the orders and `auto` are compared under shares of what `all` costs, on sessions of 4 to 60 steps if a folder is
named.
Otherwise three scripted teachers with the prices and answer lengths of three well-known models answer traces that grow
by 600 tokens per step. The student is right at 60 % of the steps. Every run is checked against the server's bill.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from composer_hub.ingest.one_file import ReadOptions
from composer_hub.ingest.prepare import Preparation
from composer_hub.ingest.reading import Reading
from composer_hub.money import NANO
from composer_hub.pairs import make, report_rows
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.votes import RecordedVotes
from composer_hub.records import Trace, stable_share
from composer_hub.replay import ORDERS, ReplayOptions, audit, forecast, pilot, purchase_of, run
from composer_hub.replay.fake import ScriptedTeacher, TeacherServer, oracle_of, serving
from composer_hub.replay.options import AUTO
from composer_hub.replay.prices import TokenPrice, from_table
from composer_hub.replay.teachers import Teacher, fetch_models, resolve
from tests.replay.sample import trace_of


def price(model: str) -> TokenPrice:
    found = from_table(model)
    assert found is not None
    return found


PANEL = (
    ScriptedTeacher("opus", "family-a", 0.92, price("claude-opus-4.7"), answer_tokens=570),
    ScriptedTeacher("gpt", "family-b", 0.85, price("gpt-5"), answer_tokens=165),
    ScriptedTeacher("deepseek", "family-c", 0.85, price("deepseek-v4-pro"), answer_tokens=1300),
)
RIGHT = 0.6  # of the student's actions


def sample(num_traces: int, num_steps: int, name: str) -> list[Trace]:
    return [trace_of(num_steps, name=f"{name}{number}", system="S" * 7500, growth=2200) for number in range(num_traces)]


def server_for(traces: Sequence[Trace]) -> TeacherServer:
    """Return teachers who know a better action at four of ten steps."""
    oracle = dict(oracle_of(traces))
    for key in list(oracle):
        if stable_share(f"student {key}") >= RIGHT:
            oracle[key] = [{"name": "bash", "arguments": {"command": f"make fix-{key[:8]}"}}]
    return TeacherServer(PANEL, oracle=oracle)


def teachers_at(url: str) -> list[Teacher]:
    specs = [{"at": f"{url}#{one.name}", "cache_key": "session_id", "max_tokens": 2000} for one in PANEL]
    return resolve(specs, list_models=fetch_models, environ={})


def replayed(
    traces: Sequence[Trace],
    order: str,
    cap: float,
    folder: Path,
    *,
    audit: float = 0.03,
    pilot_steps: int = 0,
) -> dict[str, Any]:
    """Replay in a new folder; return dollars, pairs and whether the ledger equals the bill."""
    server, options = server_for(traces), ReplayOptions(order, audit=audit, own_endpoint=True)
    with serving(server) as url:
        teachers = teachers_at(url)
        if pilot_steps:
            planned = pilot(traces, teachers, folder, options, max_usd=cap, num_steps=pilot_steps).forecast
        else:
            planned = forecast(traces, teachers, options, max_usd=cap)
        before = {name: bill.cost for name, bill in server.bills.items()}
        server.cool_down()
        summary = run(traces, teachers, folder, options, max_usd=cap)
    votes = RecordedVotes(folder)
    pairs = sum(len(build_pairs(trace, votes.of(trace.trace_id))[0]) for trace in traces)
    expected = {row["order"]: row for row in planned.orders}[order]
    bills = {name: bill.cost for name, bill in server.bills.items()}
    return {
        "order": summary.order,
        "audit": audit,
        "cap": round(cap, 4),
        "usd": round(summary.budget.settled / NANO, 4),
        "pilot_usd": round(sum(before.values()) / NANO, 4),
        "pairs": pairs,
        "too_dear": summary.tally.num_too_dear,
        "equals_bill": summary.budget.settled == server.billed,
        "recall": summary.tally.recall,
        "usd_range": [round(one, 3) for one in expected["usd_range"]],
        "pairs_range": expected["pairs_range"],
    } | (_promised(expected, planned.teachers, bills, before, pairs) if pilot_steps else {})


def _promised(
    expected: dict[str, Any], rows: list[dict[str, Any]], bills: dict[str, int], before: dict[str, int], pairs: int
) -> dict[str, Any]:
    """Return the plan over the bill: in all, of the rest after the pilot, by teacher, and of the pairs."""
    billed, paid, promised = sum(bills.values()), sum(before.values()), expected["expected_usd"] * NANO
    return {
        "plan_over_bill": round(promised / billed, 3),
        "rest_over_bill": round((promised - paid) / max(1, billed - paid), 3),
        "by_teacher": {
            row["teacher"]: round(row["expected_usd"] * NANO / max(bills[row["teacher"]], 1), 2) for row in rows
        },
        "expected_pairs": expected["expected_pairs"],
        "pairs_over_found": round(expected["expected_pairs"] / pairs, 2) if pairs else None,
    }


def report_against_bill(traces: Sequence[Trace], order: str, cap: float, folder: Path) -> dict[str, Any]:
    """Replay with faults; return the report's money beside the bill."""
    server = TeacherServer(oracle=oracle_of(traces), faults={"empty_choices": 0.05, "drop_billed": 0.03, "429": 0.05})
    options = ReplayOptions(order, own_endpoint=True)
    with serving(server) as url:
        specs = [{"at": f"{url}#{name}", "cache_key": "session_id", "max_tokens": 400} for name in server.teachers]
        teachers = resolve(specs, list_models=fetch_models, environ={})
        planned = pilot(traces, teachers, folder, options, max_usd=cap).forecast
        summary = run(traces, teachers, folder, options, max_usd=cap)
        # Lost answers are ambiguous until they are looked up.
        audit(folder, teachers, own_key=True)
    purchase = purchase_of(folder)
    assert purchase is not None
    assert purchase.budget.settled <= purchase.budget.cap
    made = make(traces, RecordedVotes(folder))
    rows = {
        (row.metric, row.scope): row.value
        for row in report_rows(
            made.pairs.outlines, made.summaries, drops=made.drops, poll=made.votes.poll, purchase=purchase
        )
    }
    by_teacher = {name: rows.get(("usd", name), 0.0) for name in server.teachers}
    expected = {row["order"]: row for row in planned.orders}[order]
    return {
        "order": summary.order,
        "cap": round(cap, 4),
        "pairs": rows["pairs", ""],
        "answered": rows.get(("answered_steps", "")),
        "report_usd": round(rows["usd", ""] or 0.0, 4),
        "retried_usd": round(rows["usd_retried", ""] or 0.0, 4),
        "bill_usd": round(server.billed / NANO, 4),
        "planned_usd": [expected["expected_usd"], *expected["usd_range"]],
        "planned_pairs": [expected["expected_pairs"], *expected["pairs_range"]],
        "same_to_the_cent": abs((rows["usd", ""] or 0.0) - server.billed / NANO) < 0.005
        and all(abs((usd or 0.0) - server.bills[name].cost / NANO) < 0.005 for name, usd in by_teacher.items()),
    }


def sessions_of(folder: str) -> list[Trace]:
    return [session.trace for session in Reading([folder], ReadOptions(transform=Preparation(None)))]


def compare_reports(folder: str) -> None:
    traces = sessions_of(folder)
    print(json.dumps({"sessions": len(traces), "steps": sum(len(trace.steps) for trace in traces)}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        bills = {}
        for order in ORDERS:
            full = report_against_bill(traces, order, 1000, Path(scratch) / order)
            bills[order] = full["bill_usd"]
            print(json.dumps({"full": full}), flush=True)
        for order in ORDERS:
            for share in (0.1, 0.3, 0.6):
                cap = share * bills[order]
                row = report_against_bill(traces, order, cap, Path(scratch) / f"{order}-{share}")
                print(json.dumps({"cap share": share, **row}), flush=True)


def compare_caps(traces: Sequence[Trace]) -> None:
    """Print dollars and pairs of every order and of `auto`, under shares of what `all` costs."""
    print(json.dumps({"traces": len(traces), "steps": sum(len(trace.steps) for trace in traces)}), flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        whole = replayed(traces, "all", 1000, Path(scratch) / "whole")["usd"]
        for share in (0.1, 0.3, 0.6, None):
            for order in (*ORDERS, AUTO):
                row = replayed(traces, order, share * whole if share else 1000, Path(scratch) / f"{order}-{share}")
                print(json.dumps({"cap share": share, "asked": order, **row}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=12)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--base", type=int, default=3, help="Traces of 50 steps, each replayed alone.")
    parser.add_argument("--sessions", metavar="FOLDER")
    parser.add_argument("--caps", action="store_true")
    parser.add_argument("--pilot", type=int, nargs="*", default=[20], help="Steps of the pilots to compare.")
    parser.add_argument("--samples", type=int, default=1, help="Sets of traces.")
    options = parser.parse_args()
    if options.caps:
        found = sessions_of(options.sessions) if options.sessions else sample(options.traces, options.steps, "t")
        compare_caps([trace for trace in found if 4 <= len(trace.steps) <= 60])
        return
    if options.sessions:
        compare_reports(options.sessions)
        return
    with tempfile.TemporaryDirectory() as scratch:
        root, base = Path(scratch), sample(options.base, 50, "base")
        for order, audit in (("all", 0.03), ("sequential", 0.03), ("cascade", 0.03), ("cascade", 0.0), (AUTO, 0.03)):
            total: dict[str, float] = defaultdict(float)
            for number, trace in enumerate(base):
                row = replayed([trace], order, 100, root / f"{order}-{audit}-{number}", audit=audit)
                assert row["equals_bill"]
                total["usd"] += row["usd"] / len(base)
                total["pairs"] += row["pairs"]
            print(json.dumps({"base trace": order, "audit": audit, **total}), flush=True)
        for number in range(options.samples):
            traces = sample(options.traces, options.steps, f"t{number}-")
            for order in (*ORDERS, AUTO):
                for num in options.pilot:
                    row = replayed(traces, order, 100, root / f"{order}-{num}-{number}", pilot_steps=num)
                    print(json.dumps({"pilot": num, "sample": number, **row}), flush=True)
    compare_caps(traces)


if __name__ == "__main__":
    main()
