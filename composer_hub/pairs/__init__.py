"""Votes to preference pairs, their report, and the versions of a pair set.

from composer_hub import hub, pairs

made = pairs.make(traces, pairs.RecordedVotes("replay-run"))
version = pairs.draft(made, "my-pairs")
hub.publish(hub.destination("local"), "me/my-pairs", version.tables, version.card, lineage=version.lineage)
"""

from composer_hub.pairs.build import PairSet, make, make_repairs
from composer_hub.pairs.consensus import build_pairs
from composer_hub.pairs.dataset import draft, merged_verdicts, reviewed_draft
from composer_hub.pairs.executed import executed_draft, executed_numbers, executed_text
from composer_hub.pairs.policy import PanelTeacher, Policy, PolicyError, Poll, PollCounts
from composer_hub.pairs.purchase import Purchase, TeacherBill
from composer_hub.pairs.repairing import repairs
from composer_hub.pairs.report import Metric, report_rows
from composer_hub.pairs.report_card import report_markdown
from composer_hub.pairs.rows import PairOptions, split_of
from composer_hub.pairs.verdicts import PairsDiff, VerdictError, apply_verdicts, diff_pairs, read_verdicts
from composer_hub.pairs.verdicts import PairVerdict as Verdict
from composer_hub.pairs.votes import GivenVotes, RecordedVotes, Votes, VotesError

__all__ = [
    "GivenVotes",
    "Metric",
    "PairOptions",
    "PairSet",
    "PairsDiff",
    "PanelTeacher",
    "Policy",
    "PolicyError",
    "Poll",
    "PollCounts",
    "Purchase",
    "RecordedVotes",
    "TeacherBill",
    "Verdict",
    "VerdictError",
    "Votes",
    "VotesError",
    "apply_verdicts",
    "build_pairs",
    "diff_pairs",
    "draft",
    "executed_draft",
    "executed_numbers",
    "executed_text",
    "make",
    "make_repairs",
    "merged_verdicts",
    "read_verdicts",
    "repairs",
    "report_markdown",
    "report_rows",
    "reviewed_draft",
    "split_of",
]
