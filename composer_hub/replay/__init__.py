"""Ask several teachers what they would have done at each step: traces and teachers in, votes out.

The names below load their modules when they are first used, so that a command shows its help quickly.

from composer_hub import replay

traces = replay.PublishedTraces(hub.load(hub.destination("hub"), "me/traces@v1.0.0"))
teachers = replay.find_teachers("hf:deepseek-ai/DeepSeek-V4-Pro:novita,hf:zai-org/GLM-5.3:novita")
print(replay.pilot(traces, teachers, "runs/one", max_usd=20).forecast.notes)
summary = replay.run(traces, teachers, "runs/one", max_usd=20)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from composer_hub.exits import Interrupted

if TYPE_CHECKING:
    from composer_hub.replay.auditing import AuditRow, audit
    from composer_hub.replay.collecting import ReplayReport, collect
    from composer_hub.replay.forecasting import Forecast, forecast
    from composer_hub.replay.judging import critic_of, judge_of, paid_model
    from composer_hub.replay.lanes import ReplayProgress
    from composer_hub.replay.ledger import CapReached, Ledger, LedgerError
    from composer_hub.replay.options import ORDERS, PILOT_STEPS, ReplayOptions
    from composer_hub.replay.planning import ReplayPlan, TeacherShare, plan
    from composer_hub.replay.prices import PriceError
    from composer_hub.replay.providers import PROVIDERS, Provider, TeacherError
    from composer_hub.replay.runs import Pilot, ReplaySummary, pilot, purchase_of, run, status
    from composer_hub.replay.sources import PublishedTraces, TraceFile, TraceSource
    from composer_hub.replay.teachers import Teacher, appointed, find_teachers, key_of

__all__ = [
    "ORDERS",
    "PILOT_STEPS",
    "PROVIDERS",
    "AuditRow",
    "CapReached",
    "Forecast",
    "Interrupted",
    "Ledger",
    "LedgerError",
    "Pilot",
    "PriceError",
    "Provider",
    "PublishedTraces",
    "ReplayOptions",
    "ReplayPlan",
    "ReplayProgress",
    "ReplayReport",
    "ReplaySummary",
    "Teacher",
    "TeacherError",
    "TeacherShare",
    "TraceFile",
    "TraceSource",
    "appointed",
    "audit",
    "collect",
    "critic_of",
    "find_teachers",
    "forecast",
    "judge_of",
    "key_of",
    "paid_model",
    "pilot",
    "plan",
    "purchase_of",
    "run",
    "status",
]
_HOMES = {
    "ORDERS": "options",
    "PILOT_STEPS": "options",
    "PROVIDERS": "providers",
    "AuditRow": "auditing",
    "CapReached": "ledger",
    "Forecast": "forecasting",
    "Ledger": "ledger",
    "LedgerError": "ledger",
    "Pilot": "runs",
    "PriceError": "prices",
    "Provider": "providers",
    "PublishedTraces": "sources",
    "ReplayOptions": "options",
    "ReplayPlan": "planning",
    "ReplayProgress": "lanes",
    "ReplayReport": "collecting",
    "ReplaySummary": "runs",
    "Teacher": "teachers",
    "TeacherError": "providers",
    "TeacherShare": "planning",
    "TraceFile": "sources",
    "TraceSource": "sources",
    "appointed": "teachers",
    "audit": "auditing",
    "collect": "collecting",
    "critic_of": "judging",
    "find_teachers": "teachers",
    "forecast": "forecasting",
    "judge_of": "judging",
    "key_of": "teachers",
    "paid_model": "judging",
    "pilot": "runs",
    "plan": "planning",
    "purchase_of": "runs",
    "run": "runs",
    "status": "runs",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
