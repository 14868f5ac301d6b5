"""Reviewers' verdicts: drafts from a browser in, one pull request on the dataset out; and back, as review states.

A submission adds one file `verdicts/<reviewer>/<time>-<digest>.jsonl` and changes no other file, so pull requests never
conflict. A verdict is by the account that sent its file (`reviews.py`); the last one of a reviewer on a pair counts.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx

from inspector.reviews import REVIEWS, ReviewFile, ReviewFiles
from inspector.vocabulary import BLAMES

PAIR_VERDICTS = ("accept", "reject", "edit", "swap")
REASONS = {
    "equal": "equally good",
    "both_wrong": "both wrong",
    "unclear": "cannot be told",
    "unsafe": "unsafe",
    "private": "private data",
}
HINT_VERDICTS = ("good_hint", "bad_hint", "edit_hint", "wrong_blame")
MAX_VERDICTS = 1_000  # of one submission
MAX_NOTE = 500
MAX_HINT = 2_000
MAX_EDIT = 100_000
_MAX_FILES = 2_000
_REMEMBER_S = 60.0
_STATES = {"accept": "accepted", "reject": "rejected", "edit": "edited", "swap": "swapped"}

Row = dict[str, Any]


class BadVerdict(ValueError):
    """A verdict that cannot be published."""


def check(draft: Any, *, repo: str, revision: str, reviewer: str, now: str) -> Row:
    """Return a draft as the row that is published; all rows have the same columns."""
    if not isinstance(draft, Mapping) or not isinstance(draft.get("id"), str) or not 0 < len(draft["id"]) <= 200:
        raise BadVerdict("A verdict needs the id of a pair or of an error site.")
    verdict, shuffle, reason = draft.get("verdict"), draft.get("shuffle"), draft.get("reason")
    if isinstance(shuffle, str) and verdict in ("first", "second"):
        verdict = "accept" if (verdict == "first") == chosen_first(shuffle, draft["id"]) else "swap"
    if verdict not in (*PAIR_VERDICTS, *HINT_VERDICTS):
        raise BadVerdict(f"{str(verdict)[:40]!r} is not a verdict.")
    on_pair = verdict in PAIR_VERDICTS
    hint, blame = _text(draft.get("edited_hint"), MAX_HINT).strip(), _text(draft.get("blame"), 20)
    if verdict == "edit_hint" and not hint:
        raise BadVerdict("An edited hint needs a text.")
    if blame and blame not in BLAMES:
        raise BadVerdict(f"{blame!r} is not a blame.")
    row = {
        "target": "pair" if on_pair else "hint",
        "pair_id": draft["id"] if on_pair else "",
        "site_id": "" if on_pair else draft["id"],
        "trace_id": _text(draft.get("trace_id"), 200),
        "verdict": verdict,
        "edited_chosen": [edited_message(draft.get("edited"))] if verdict == "edit" else [],
        "reason": _text(reason, 20) if verdict == "reject" and _text(reason, 20) in REASONS else "",
        "edited_hint": hint if verdict == "edit_hint" else "",
        "blame": blame if verdict == "wrong_blame" else "",
        "note": _text(draft.get("note"), MAX_NOTE),
        "blind": isinstance(shuffle, str) and draft.get("seen") is False,
        "dataset": repo,
        "dataset_revision": revision,
        "reviewer": reviewer,
        "reviewer_kind": "human",
        "created_at": now,
    }
    return {"verdict_id": _digest(row), **row}


def chosen_first(shuffle: str, pair_id: str) -> bool:
    """Return whether a blind reader sees the chosen action first: always the same for a reader and a pair."""
    return hashlib.sha256(f"{shuffle}\n{pair_id}".encode("utf-8", "replace")).digest()[0] % 2 == 0


def edited_message(calls: Any) -> Row:
    """Return an edited action as an assistant message; it must hold at least one call."""
    if not isinstance(calls, list) or not calls or len(json.dumps(calls)) > MAX_EDIT:
        raise BadVerdict("An edit is a list of calls, each with a name and an object of arguments.")
    listed = []
    for number, call in enumerate(calls):
        name, arguments = (call.get("name"), call.get("arguments")) if isinstance(call, dict) else (None, None)
        if not isinstance(name, str) or not name or not isinstance(arguments, dict):
            raise BadVerdict(f"Call {number + 1} of the edit needs a name and an object of arguments.")
        listed.append({"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}})
    return {"role": "assistant", "content": "", "tool_calls": listed}


def submit(api: HfApi, repo: str, revision: str, drafts: Sequence[Any], token: str) -> Row:
    """Open one pull request with all drafts, in the name of the token's owner; return its number and address."""
    if not isinstance(drafts, list) or not 0 < len(drafts) <= MAX_VERDICTS:
        raise BadVerdict(f"Submit between 1 and {MAX_VERDICTS:,} verdicts at a time.")
    reviewer = str(api.whoami(token=token)["name"])
    now = datetime.now(UTC)
    rows = [
        check(draft, repo=repo, revision=revision, reviewer=reviewer, now=now.isoformat(timespec="seconds"))
        for draft in drafts
    ]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "replace")
    path = f"{REVIEWS}/{reviewer}/{now:%Y%m%dT%H%M%S}-{hashlib.sha256(content).hexdigest()[:8]}.jsonl"
    counts = ", ".join(f"{name} {count}" for name, count in Counter(row["verdict"] for row in rows).most_common())
    command = f"composer-hub {'pairs' if rows[0]['target'] == 'pair' else 'traces'} apply-verdicts"
    info = api.create_commit(
        repo,
        [CommitOperationAdd(path, content)],
        commit_message=f"Add {len(rows)} verdicts of {reviewer}",
        commit_description=f"{counts}. Reviewed at {revision}. Merge, then run `{command}`.",
        repo_type="dataset",
        create_pr=True,
        token=token,
    )
    return {"num": info.pr_num, "url": info.pr_url, "path": path, "count": len(rows), "reviewer": reviewer}


@dataclass(frozen=True)
class Standing:
    """The verdicts on a dataset that count, the number of open pull requests with some, and the refused files."""

    rows: list[Row] = field(default_factory=list)
    pending: int = 0
    refused: list[ReviewFile] = field(default_factory=list)


class Reviews:
    """The verdicts on a dataset, merged or still in open pull requests; read again after a minute."""

    def __init__(self, api: HfApi) -> None:
        self.api = api
        self._known: dict[str, tuple[float, Standing]] = {}
        self._files: dict[str, dict[tuple[str, str], ReviewFile]] = {}
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def name_of(self, token: str | None) -> str:
        """Return the account of a token, or "" if the Hub cannot be asked now."""
        if token and token not in self._names:
            with suppress(HfHubHTTPError, OSError, httpx.HTTPError):
                self._names[token] = str(self.api.whoami(token=token)["name"])
            if len(self._names) > _MAX_FILES:
                self._names.pop(next(iter(self._names)))
        return self._names.get(token or "", "")

    def of(self, repo: str, token: str | None) -> Standing:
        """Return the reviewers' decisions, under the accounts that the Hub recorded."""
        with self._lock:
            asked, standing = self._known.get(repo, (-_REMEMBER_S, Standing()))
        if time.monotonic() - asked >= _REMEMBER_S:
            standing = self._read(repo, token)
            with self._lock:
                self._known[repo] = (time.monotonic(), standing)
        return standing

    def forget(self, repo: str) -> None:
        """Read a dataset's verdicts again when they are asked for next."""
        with self._lock:
            self._known.pop(repo, None)

    def _read(self, repo: str, token: str | None) -> Standing:
        files = ReviewFiles(self.api, repo, token or False, self._files.setdefault(repo, {}))
        merged = files.merged("main")[:_MAX_FILES]
        read = [self._rows(repo, file, token) for file in (*merged, *files.proposed())]
        return Standing(
            latest(row for _, rows in read for row in rows),
            len({file.pull for file, rows in read[len(merged) :] if rows}),
            [file for file, _ in read if file.refusal],
        )

    def _rows(self, repo: str, file: ReviewFile, token: str | None) -> tuple[ReviewFile, list[Row]]:
        if file.refusal:
            return file, []
        local = self.api.hf_hub_download(
            repo, file.path, repo_type="dataset", revision=file.revision, token=token or False
        )
        rows = read_file(local)
        file = file.signed(row["reviewer"] for row in rows)
        return file, [] if file.refusal else [row | {"created_at": file.sent_at} for row in rows]


def read_file(path: str) -> list[Row]:
    """Return the rows of a verdict file that are verdicts; anyone may have written it."""
    rows = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for _, line in zip(range(MAX_VERDICTS), file, strict=False):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            known = isinstance(row, dict) and all(isinstance(row.get(key), str) for key in ("verdict_id", "verdict"))
            if known and row["verdict"] in (*PAIR_VERDICTS, *HINT_VERDICTS):
                rows.append(
                    {key: value for key, value in row.items() if key in _COLUMNS}
                    | {key: _text(str(row.get(key) or ""), MAX_NOTE) for key in _TEXTS}
                )
    return rows


_TEXTS = ("pair_id", "site_id", "note", "reason", "reviewer", "created_at")
_COLUMNS = {"verdict_id", "verdict", "blind", *_TEXTS}


def latest(rows: Iterable[Row]) -> list[Row]:
    """Keep each reviewer's last verdict on each pair or site."""
    last: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: row["created_at"]):
        last[row["pair_id"] or row["site_id"], row["reviewer"]] = row
    return list(last.values())


def states(rows: Iterable[Row]) -> dict[str, tuple[str, str]]:
    """Return the review state of each pair and who decided, as `|ada|me|`; reviewers who differ make it disputed."""
    found: dict[str, tuple[str, str]] = {}
    for row in rows:
        if row["pair_id"]:
            state = _STATES.get(row["verdict"], "disputed")
            before, reviewers = found.get(row["pair_id"], (state, "|"))
            found[row["pair_id"]] = (state if before == state else "disputed", f"{reviewers}{row['reviewer']}|")
    return found


def agreement(rows: Iterable[Row]) -> Row:
    """Return how often two reviewers of a pair agree, and Krippendorff's alpha, for any number of reviewers."""
    by_pair: dict[str, dict[str, Row]] = {}
    for row in rows:
        if row["pair_id"]:
            by_pair.setdefault(row["pair_id"], {})[row["reviewer"]] = row
    shared = [list(found.values()) for found in by_pair.values() if len(found) > 1]
    given = Counter(row["verdict"] for found in shared for row in found)
    num = given.total()
    # Each pair of reviewers counts for one in the number of its pair's other reviewers, as in the coincidence matrix.
    differing = sum(
        (one["verdict"] != other["verdict"]) / (len(found) - 1) for found in shared for one in found for other in found
    )
    by_chance = num * num - sum(count * count for count in given.values())
    return {
        "n": len(shared),
        "reviewers": len({row["reviewer"] for found in shared for row in found}),
        "blind": sum(all(row.get("blind") is True for row in found) for found in shared),
        "agreement": 1 - differing / num if num else None,
        "alpha": 1 - (num - 1) * differing / by_chance if by_chance else None,
    }


def _text(value: Any, limit: int) -> str:
    return value[:limit].encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _digest(row: Row) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:24]
