"""Ask several teachers what they would have done at each step: traces and teachers in, votes out.

from composer_hub import replay

traces = replay.PublishedTraces(hub.load(hub.destination("hub"), "me/traces@v1.0.0"))
teachers = replay.find_teachers("hf:deepseek-ai/DeepSeek-V4-Pro:novita,hf:zai-org/GLM-5.3:novita")
print(replay.pilot(traces, teachers, "runs/one", max_usd=20).forecast.notes)
summary = replay.run(traces, teachers, "runs/one", max_usd=20)
"""

from composer_hub.exits import Interrupted
from composer_hub.replay.auditing import AuditRow, audit
from composer_hub.replay.collecting import ReplayReport, collect
from composer_hub.replay.forecasting import Forecast, forecast
from composer_hub.replay.judging import critic_of, judge_of, paid_model
from composer_hub.replay.lanes import ReplayProgress
from composer_hub.replay.ledger import CapReached, Ledger, LedgerError
from composer_hub.replay.options import ORDERS, ReplayOptions
from composer_hub.replay.planning import ReplayPlan, TeacherShare, plan
from composer_hub.replay.prices import PriceError
from composer_hub.replay.providers import PROVIDERS, Provider, TeacherError
from composer_hub.replay.runs import PILOT_STEPS, Pilot, ReplaySummary, pilot, purchase_of, run, status
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
