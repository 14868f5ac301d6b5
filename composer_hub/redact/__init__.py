"""Traces in, traces without secrets and personal data out."""

from composer_hub.redact.data import judge_digest
from composer_hub.redact.numbering import Numbering
from composer_hub.redact.own import dotenv_secrets, environment_secrets
from composer_hub.redact.publisher import NO_ONE, Publisher, this_publisher
from composer_hub.redact.redactor import (
    RedactionError,
    RedactionReport,
    Redactor,
    drop_denied,
    read_denylist,
    rules_digest,
)
from composer_hub.redact.review import Decisions, Sample
from composer_hub.redact.scanner import LeakFound, find_kingfisher, need_kingfisher, refuse_leaks
from composer_hub.redact.trace import DROPPED_COLUMNS, without_tokens_of_changed_text

__all__ = [
    "DROPPED_COLUMNS",
    "NO_ONE",
    "Decisions",
    "LeakFound",
    "Numbering",
    "Publisher",
    "RedactionError",
    "RedactionReport",
    "Redactor",
    "Sample",
    "dotenv_secrets",
    "drop_denied",
    "environment_secrets",
    "find_kingfisher",
    "judge_digest",
    "need_kingfisher",
    "read_denylist",
    "refuse_leaks",
    "rules_digest",
    "this_publisher",
    "without_tokens_of_changed_text",
]
