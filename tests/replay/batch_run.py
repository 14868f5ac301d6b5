"""A run in batches in a separate process, for a test that kills it."""

from __future__ import annotations

from composer_hub.money import NANO
from composer_hub.replay.collect import collect
from composer_hub.replay.ledger import Ledger
from composer_hub.replay.options import ReplayOptions
from tests.replay.sample import compare, teachers_at, trace_of

NAMES = ("small", "medium")
OPTIONS = ReplayOptions(order="all", audit=0, repeat=0)
TRACES = [trace_of(5, name=f"t{number}") for number in range(4)]


def main(url: str, path: str) -> None:
    with Ledger(path, cap=NANO) as ledger:
        list(collect(TRACES, teachers_at(url, NAMES, lane="batch"), ledger, OPTIONS, compare=compare, environ={}))
