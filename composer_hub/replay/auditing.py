"""The ledger of a run against the provider's own records: ambiguous money becomes settled money.

In: a run folder and its teachers. Out: one `AuditRow` per endpoint. A lost answer whose id is known is looked up. What
remains can be settled by what the key has spent since the run began, but only if nothing else used the key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from composer_hub import exits
from composer_hub.money import from_usd, show_usd, to_usd
from composer_hub.pairs.votes import VOTES_FILE
from composer_hub.replay.ledger import Ambiguous, Ledger, existing
from composer_hub.replay.teachers import Teacher, appointed, key_of

Get = Callable[[str, str, Mapping[str, str]], Any]
"""(URL, key, query) -> the JSON of the answer, or None if the endpoint does not offer it."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One endpoint of a run; dollars. None: the endpoint does not report it."""

    endpoint: str
    settled_usd: float  # of its teachers, after the audit
    looked_up: int  # requests whose cost was found by their id
    looked_up_usd: float
    ambiguous: int  # requests whose cost is still unknown
    ambiguous_usd: float
    key_spent_usd: float | None  # since the run began
    unexplained_usd: float | None  # spent by the key and not settled in the ledger

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def note_usage(teachers: Sequence[Teacher], ledger: Ledger, environ: Mapping[str, str], get: Get | None = None) -> None:
    """Read what each key has spent before the run's first call, from endpoints that report it."""
    for base_url, group in _endpoints(teachers).items():
        if ledger.first_usage(base_url) is None:
            spent = _usage(group[0], environ, get or fetch)
            if spent is not None:
                ledger.note_usage(base_url, spent)


def audit(
    folder: str | Path,
    teachers: Sequence[Teacher],
    *,
    own_key: bool = False,
    environ: Mapping[str, str] = os.environ,
    get: Get | None = None,
) -> list[AuditRow]:
    """Look up ambiguous requests and compare the ledger with the keys' usage.

    With `own_key`, only this run used the keys: what they spent and the ledger does not know is the cost of the
    requests that are still ambiguous, and is divided among them. The judge is looked up with its endpoint.
    """
    panel, judge = appointed(teachers)
    with Ledger(existing(Path(folder) / VOTES_FILE)) as ledger:
        return [
            _audit(ledger, base_url, group, own_key, environ, get or fetch)
            for base_url, group in _endpoints([*panel, judge]).items()
        ]


def _audit(
    ledger: Ledger, base_url: str, group: Sequence[Teacher], own_key: bool, environ: Mapping[str, str], get: Get
) -> AuditRow:
    names, key = {teacher.name for teacher in group}, key_of(group[0], environ)
    path = group[0].provider.generation_path
    found: list[int] = []
    for one in [one for one in ledger.ambiguous() if one.teacher in names and one.request_id]:
        answer = get(f"{base_url}{path}", key, {"id": one.request_id}) if path else None
        cost = from_usd(_data(answer).get("total_cost"))
        if cost is not None:
            ledger.resolve(one.try_id, cost, source="generation")
            found.append(cost)
    first, now = ledger.first_usage(base_url), _usage(group[0], environ, get)
    spent = None if first is None or now is None or now < first else now - first
    left = [one for one in ledger.ambiguous() if one.teacher in names]
    if own_key and left:
        if spent is None:
            raise exits.UsageError(
                f"{base_url} does not tell what the key has spent since the run began, so the {len(left)} requests "
                "cannot be settled by it. Leave out --own-key."
            )
        _divide(ledger, left, spent - _settled(ledger, names))
        left = []
    settled = _settled(ledger, names)
    return AuditRow(
        base_url,
        to_usd(settled),
        len(found),
        to_usd(sum(found)),
        len(left),
        to_usd(sum(one.reserved for one in left)),
        None if spent is None else to_usd(spent),
        None if spent is None else to_usd(spent - settled),
    )


def _divide(ledger: Ledger, left: Sequence[Ambiguous], amount: int) -> None:
    """Settle requests at an amount in all, in proportion to their reservations."""
    total = sum(one.reserved for one in left)
    if not 0 <= amount <= total:
        raise exits.UsageError(
            f"The key has spent {show_usd(abs(amount))} {'more' if amount > 0 else 'less'} than the ledger has "
            f"settled, and the ambiguous requests can explain 0 to {show_usd(total)}. Something else used the key: "
            "leave out --own-key."
        )
    rest = amount
    for place, one in enumerate(left):
        cost = rest if place == len(left) - 1 else amount * one.reserved // total
        rest -= cost
        ledger.resolve(one.try_id, cost, source="usage")


def _settled(ledger: Ledger, names: set[str]) -> int:
    return sum(row["spent"] for row in ledger.by_teacher() if row["teacher"] in names)


def _usage(teacher: Teacher, environ: Mapping[str, str], get: Get) -> int | None:
    path = teacher.provider.usage_path
    if not path:
        return None
    return from_usd(_data(get(f"{teacher.base_url}{path}", key_of(teacher, environ), {})).get("usage"))


def _data(answer: Any) -> Mapping[str, Any]:
    data = answer.get("data") if isinstance(answer, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _endpoints(teachers: Sequence[Teacher]) -> dict[str, list[Teacher]]:
    groups: dict[str, list[Teacher]] = {}
    for teacher in teachers:
        groups.setdefault(teacher.base_url, []).append(teacher)
    return groups


def fetch(url: str, key: str, query: Mapping[str, str]) -> Any:
    """Fetch JSON; None if the endpoint does not offer it or does not answer."""
    from huggingface_hub.utils import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        tls = url.startswith("https:")
        response = httpx.get(url, params=dict(query), headers=headers, timeout=30, follow_redirects=False, verify=tls)
        return response.json() if response.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
