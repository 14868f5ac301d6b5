"""Teachers: the models to ask, each over one pinned route with a price and terms.

In: addresses (see `providers`) or a teachers file (YAML, TOML or JSON), and the endpoints' lists of models. Out:
`Teacher`s in order of price. A teacher without a known price is refused until the user gives one; a teacher whose terms
forbid training is refused until the user accepts them. Keys are read when a client is created, and are never recorded.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

from composer_hub.harnesses import family_of
from composer_hub.money import FREE, TokenPrice
from composer_hub.named_files import text_of
from composer_hub.records import stable_id
from composer_hub.replay import prices, terms
from composer_hub.replay.providers import SERVER, Provider, TeacherError, parse_address

JUDGE = "judge"  # the name of the teacher that is asked about would-be pairs and never votes

ListModels = Callable[[str, str], Sequence[Mapping[str, Any]]]
"""(base URL, key) -> the entries of the endpoint's `/models` list."""


@dataclass(frozen=True, slots=True)
class Teacher:
    """One model over one pinned route."""

    name: str
    model: str  # the endpoint's name of it
    base_url: str
    provider: Provider = SERVER
    server: str = ""  # the provider that a router is pinned to: another one has another cache and another price
    family: str = ""
    price: TokenPrice = FREE
    terms: str = ""  # the reason why its answers may be trained on
    terms_accepted: bool = False  # by the user, against the endpoint's flag
    context_length: int = 0  # tokens (0: unknown)
    max_tokens: int = 4096
    params: Mapping[str, Any] = field(default_factory=dict)  # temperature, reasoning, …; part of the question's key
    key_env: str = ""
    cache_key: str = ""  # the request field that names the lane: session_id or prompt_cache_key
    cache_marks: bool = False  # explicit cache_control marks (Claude)
    cache_ttl_s: float = 300.0
    cache_min_tokens: int = 1024
    bills_errors: bool = True  # whether a 5xx may be billed
    max_concurrency: int = 16
    serves: tuple[str, ...] = ()  # other names under which the endpoint reports this model
    timeout_s: float = 600.0
    unlisted: str = ""  # why a plan could not read the endpoint's list of models

    @property
    def route(self) -> str:
        """Return the identity of this teacher's answers."""
        return f"{self.base_url}#{self.model}@{self.server}"

    @property
    def identity(self) -> str:
        """Return a digest of everything of this teacher that shapes its answers."""
        return stable_id(self.route, self.params, self.max_tokens)

    @property
    def model_id(self) -> str:
        """Return the model as requests name it."""
        return self.provider.model_id(self.model, self.server)

    def fixed(self, chat: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the request fields that the reservation of a call relies on."""
        return {
            "messages": list(chat),
            "model": self.model_id,
            "max_tokens": self.max_tokens,
            "tools": list(tools) or None,
        }

    def extra_body(self, lane: str) -> dict[str, Any]:
        """Return the request fields that pin the server and name the lane, with the teacher's own parameters."""
        body = dict(self.params)
        if self.cache_key:
            body[self.cache_key] = lane
        return body | self.provider.extra_body(self.server, not self.terms_accepted)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.base_url)

    def __str__(self) -> str:
        return f"{self.name} ({self.base_url})"


# ------------------------------------------------------------------------------------------------------ naming them

_KINDS: Mapping[Any, str] = {
    str: "a text in one line",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    tuple[str, ...]: "a list of texts",
    Mapping[str, Any]: "a table of JSON values",
}
_POSITIVE = frozenset({"max_tokens", "max_concurrency", "timeout_s"})
_MOST = 2**31  # of any number
_COSTLY = frozenset(
    "max_completion_tokens max_output_tokens n best_of stream stream_options models route plugins web_search_options "
    "service_tier".split()
)
"""Request fields that change what a call costs, so that its reservation would be wrong."""
_OPTIONS = frozenset(
    {option.name for option in dataclasses.fields(Teacher)}
    - {"model", "base_url", "provider", "server", "terms", "terms_accepted", "unlisted"}
)


def find_teachers(
    addresses: str | Sequence[str] = "",
    *,
    file: Path | None = None,
    given_prices: Sequence[str] = (),
    accepted: Collection[str] = (),
    max_tokens: int | None = None,
    planning: bool = False,
    judge: str = "",
    list_models: ListModels | None = None,
    environ: Mapping[str, str] = os.environ,
) -> list[Teacher]:
    """Return the teachers at some addresses or in a teachers file, cheapest first, with prices, terms and limits.

    Each endpoint is asked for its list of models. `given_prices` are `name=in/out[/cached[/write]]` in dollars per
    million tokens, `accepted` the names of teachers whose terms the user has accepted. Teachers for `planning` need no
    key, and no list if their price is known without it; they cannot be asked. The teacher at the address `judge` is
    called so.
    """
    specs = read_file(file) if file else parse_names(addresses if isinstance(addresses, str) else ",".join(addresses))
    if max_tokens:
        specs = [{**spec, "max_tokens": max_tokens} for spec in specs]
    if "," in judge:
        raise TeacherError(f"--judge takes one teacher, not {judge}.")
    if judge:
        specs = [*specs, {"at": judge, "name": JUDGE}]
    given = prices.parse_given(given_prices, today=date.today().isoformat())
    return resolve(
        specs,
        list_models=list_models or fetch_models,
        given=given,
        accepted=accepted,
        planning=planning,
        environ=environ,
    )


def appointed(teachers: Sequence[Teacher], student: str = "") -> tuple[list[Teacher], Teacher]:
    """Return the panel and its judge: the teacher called `judge`, else the cheapest one in a second role.

    A judge of the student's family would not be asked, so the cheapest of another family is taken, if there is one.
    """
    panel = [teacher for teacher in teachers if teacher.name != JUDGE]
    if not panel:
        raise TeacherError("The judge votes on nothing alone. Name teachers, too.")
    others = [teacher for teacher in panel if not student or teacher.family != student]
    judge = next((teacher for teacher in teachers if teacher.name == JUDGE), (others or panel)[0])
    # Its prompts share no beginning, so that a mark would be paid and never read.
    return panel, dataclasses.replace(judge, name=JUDGE, cache_marks=False)


def parse_names(names: str) -> list[dict[str, Any]]:
    """Read `--teachers a,b,c`."""
    specs = [{"at": name.strip()} for name in names.split(",") if name.strip()]
    if not specs:
        raise TeacherError("No teachers. Give --teachers hf:org/model:provider,… or --teachers-file FILE.")
    return specs


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read a teachers file: a list of tables, each with `at` and any options, alone or under `teachers`."""
    try:
        content = _parse(path, text_of(path))
    except (OSError, ValueError) as error:
        raise TeacherError(f"{path} cannot be read as a teachers file ({error}).") from error
    except RecursionError:
        raise TeacherError(f"{path} cannot be read as a teachers file (it is nested too deeply).") from None
    specs = content.get("teachers") if isinstance(content, Mapping) else content
    if not isinstance(specs, list) or not specs or not all(isinstance(s, Mapping) and "at" in s for s in specs):
        raise TeacherError(f"{path} must hold a list `teachers`, each with `at`: openrouter:…, hf:… or a URL#model.")
    try:
        for spec in specs:
            _named(spec)
    except TeacherError as error:
        raise TeacherError(f"{path}: {error}") from None
    return [dict(spec) for spec in specs]


def _parse(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".toml":
        return tomllib.loads(text)
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def resolve(
    specs: Sequence[Mapping[str, Any]],
    *,
    list_models: ListModels,
    given: Mapping[str, TokenPrice] | None = None,
    accepted: Collection[str] = (),
    planning: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> list[Teacher]:
    """Return the teachers of some specs, cheapest first, with price, terms and limits from their endpoints' lists."""
    lists: dict[str, tuple[Sequence[Mapping[str, Any]], str]] = {}
    teachers = []
    for spec in specs:
        teacher = _named(spec)
        if teacher.base_url not in lists:
            lists[teacher.base_url] = _list_of(teacher, list_models, environ, planning)
        entries, unlisted = lists[teacher.base_url]
        teacher = dataclasses.replace(teacher, unlisted=unlisted)
        teachers.append(_complete(teacher, entries, spec, given or {}, accepted))
    _check_names(teachers, {*(given or {}), *accepted})
    return sorted(teachers, key=lambda teacher: (teacher.price.typical(), teacher.name))


def _list_of(
    teacher: Teacher, list_models: ListModels, environ: Mapping[str, str], planning: bool
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the list of a teacher's endpoint, or for a plan the reason why there is none."""
    try:
        return list_models(teacher.base_url, key_of(teacher, environ, needed=not planning)), ""
    except TeacherError as error:
        if not planning:
            raise
        return [], str(error)


def _named(spec: Mapping[str, Any]) -> Teacher:
    at = _shown(spec["at"])
    if unknown := set(spec) - _OPTIONS - {"at"}:
        raise TeacherError(
            f"Teacher {at}: unknown option {', '.join(sorted(map(_shown, unknown)))}. "
            f"Known options: {', '.join(sorted(_OPTIONS))}."
        )
    hints = {**get_type_hints(Teacher), "at": str, "price": str}
    for name, value in spec.items():
        if not _fits(value, hints[name]) or not _in_range(name, value):
            least = "above 0" if name in _POSITIVE else "0 or more"
            limits = f" ({least}, below {_MOST:,})" if hints[name] in (int, float) else ""
            raise TeacherError(
                f"Teacher {at}: {name} must be {_KINDS[hints[name]]}{limits}. Correct it or leave it out."
            )
    address = parse_address(spec["at"])
    provider, family = address.provider, family_of(address.model)
    defaults = {
        "name": address.model.rsplit("/", 1)[-1],
        "family": family,
        "key_env": provider.key_env,
        "cache_key": provider.cache_key,
        "cache_marks": family in provider.marked_families,
        "bills_errors": provider.bills_errors,
    }
    options = {key: value for key, value in spec.items() if key not in ("at", "price")}
    if "serves" in options:
        options["serves"] = tuple(options["serves"])
    teacher = Teacher(
        model=address.model,
        base_url=address.base_url,
        provider=provider,
        server=address.server,
        **{**defaults, **options},
    )
    own = {*teacher.fixed((), ()), *_COSTLY}
    routing = set(dataclasses.replace(teacher, params={}).extra_body(""))
    if taken := ({*teacher.params, teacher.cache_key} & own) | (set(teacher.params) & routing):
        raise TeacherError(
            f"Teacher {at}: params and cache_key may not set {', '.join(sorted(taken))}: replay sets or bounds it, so "
            "that the cap holds. Leave it out; max_tokens is an option of its teacher."
        )
    return teacher


def _shown(text: Any) -> str:
    return str(text).encode("utf-8", "backslashreplace").decode()


def _fits(value: Any, hint: Any) -> bool:
    """Return whether a value of a file is what the annotation of a field names."""
    if hint is str:
        return isinstance(value, str) and value.isprintable()
    if hint is float:
        return type(value) in (int, float)
    if hint == tuple[str, ...]:
        return isinstance(value, (list, tuple)) and all(_fits(one, str) for one in value)
    if hint == Mapping[str, Any]:
        return isinstance(value, Mapping) and _is_json(value)
    return type(value) is hint


def _in_range(name: str, value: Any) -> bool:
    if name == "name":
        return bool(value)
    if type(value) not in (int, float):
        return True
    return (value > 0 if name in _POSITIVE else value >= 0) and value < _MOST


def _is_json(value: Mapping[str, Any]) -> bool:
    try:
        # The lists around it keep what is nearly too deep from failing later, inside a request.
        wrapped: Any = value
        for _ in range(200):
            wrapped = [wrapped]
        json.dumps(wrapped)
        return bool(json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value)
    except (ValueError, TypeError, RecursionError):
        return False


def _complete(
    teacher: Teacher,
    entries: Sequence[Mapping[str, Any]],
    spec: Mapping[str, Any],
    given: Mapping[str, TokenPrice],
    accepted: Collection[str],
) -> Teacher:
    """Fill in a teacher from the endpoint's list; refuse one that may not or cannot be used."""
    entry = next((e for e in entries if teacher.model in (e.get("id"), e.get("canonical_slug"))), {})
    if entries and not entry and teacher.provider.lists_every_model:
        raise TeacherError(f"Teacher {teacher.name}: {teacher.base_url} lists no model {teacher.model!r}.")
    offer = _offer(teacher, entry)
    if offer.get("supports_tools") is False:
        raise TeacherError(f"Teacher {teacher.name}: {teacher.server} serves it without tools, which replay needs.")
    family = str(spec.get("family") or entry.get("family") or teacher.family)
    lengths: Iterator[Any] = (one.get("context_length") for one in (spec, offer, entry))
    allowed = terms.terms_of(teacher.model, family, entry, own_endpoint=teacher.is_loopback)
    if not (teacher.unlisted and allowed.trainable is None):  # the list may say it
        terms.check(teacher.name, allowed, accepted)
    return dataclasses.replace(
        teacher,
        family=family,
        terms=allowed.reason,
        terms_accepted=not allowed.trainable,
        price=_price(teacher, entry, spec, given),
        context_length=next((int(one) for one in lengths if type(one) in (int, float) and 1 <= one < _MOST), 0),
        serves=(*teacher.serves, *(str(entry[key]) for key in ("canonical_slug",) if entry.get(key))),
    )


def _offer(teacher: Teacher, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of the pinned server in a router's list."""
    offers = entry.get("providers") or ()
    offer = next((o for o in offers if isinstance(o, Mapping) and o.get("provider") == teacher.server), None)
    if offers and offer is None and teacher.server:
        names = ", ".join(sorted(str(o.get("provider")) for o in offers if isinstance(o, Mapping)))
        raise TeacherError(f"Teacher {teacher.name}: {teacher.server} does not serve it. Providers: {names}.")
    return offer or {}


def _price(
    teacher: Teacher, entry: Mapping[str, Any], spec: Mapping[str, Any], given: Mapping[str, TokenPrice]
) -> TokenPrice:
    """Return the given price, else the endpoint's, else the table's."""
    if teacher.name in given:
        return given[teacher.name]
    if spec.get("price") is not None:
        return prices.parse_given([f"{teacher.name}={spec['price']}"], today=date.today().isoformat())[teacher.name]
    stamp = f"{urlsplit(teacher.base_url).hostname} {date.today().isoformat()}"
    try:
        price = teacher.provider.read_price(entry, server=teacher.server, stamp=stamp)
    except prices.PriceError as error:
        raise prices.PriceError(f"Teacher {teacher.name}, in the list of {stamp}: {error}") from None
    if price is None and not teacher.is_loopback:
        price = prices.from_table(teacher.model)
    if price is None:
        raise TeacherError(
            f"Teacher {teacher.name}: its price is unknown. {teacher.unlisted}{' ' * bool(teacher.unlisted)}Give it in "
            "dollars per million tokens: "
            f"--price {teacher.name}=in/out[/cached[/write]] (0/0 if it is free)."
        )
    return price


def unlisted_notes(teachers: Sequence[Teacher]) -> Iterator[str]:
    """Yield notes on unknown facts of teachers whose endpoint's list could not be read."""
    for reason in dict.fromkeys(one.unlisted for one in teachers if one.unlisted):
        known = ", ".join(f"{one.name} ({one.price.stamp})" for one in teachers if one.unlisted == reason)
        yield (
            f"{reason} Until that list is read, these prices may differ, and context lengths and changed terms are "
            f"unknown: {known}."
        )


def _check_names(teachers: Sequence[Teacher], named: Collection[str]) -> None:
    names = [teacher.name for teacher in teachers]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TeacherError(f"Two teachers are called {', '.join(sorted(twice))}; give one a `name` in a teachers file.")
    if unknown := set(named) - set(names):
        raise TeacherError(f"No teacher is called {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}.")


# ------------------------------------------------------------------------------------------------------ their edges


def is_loopback(url: str) -> bool:
    """Return whether a URL stays on this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def key_of(teacher: Teacher, environ: Mapping[str, str] = os.environ, *, needed: bool = True) -> str:
    """Return the key for a teacher's endpoint, "" if it needs none. Messages never contain the key."""
    if not teacher.key_env:
        return ""
    key = environ.get(teacher.key_env, "").strip() or teacher.provider.stored_key()
    if not key and not needed:
        return ""
    if not key:
        raise TeacherError(f"Teacher {teacher.name} needs a key: set {teacher.key_env} and run again.")
    if not key.isascii() or not key.isprintable():
        raise TeacherError(
            f"The key in {teacher.key_env} has characters that are not allowed in a header; copy it again."
        )
    return key


def fetch_models(base_url: str, key: str) -> Sequence[Mapping[str, Any]]:
    """Fetch an endpoint's list of models; empty if the server has none."""
    from huggingface_hub.utils import httpx

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        tls = base_url.startswith("https:")
        response = httpx.get(f"{base_url}/models", headers=headers, timeout=30, follow_redirects=False, verify=tls)
    except httpx.HTTPError as error:
        raise TeacherError(
            f"{base_url} cannot be reached ({error or type(error).__name__}). Is the server running, and is the "
            "address right?"
        ) from None
    if response.status_code in (404, 405, 501):
        return []
    if response.status_code != 200:
        raise TeacherError(f"{base_url}/models answers {response.status_code}. Check the address and the key.")
    try:
        content = response.json()
        entries = content["data"] if isinstance(content, Mapping) else content
        return [entry for entry in entries if isinstance(entry, Mapping)]
    except (ValueError, KeyError, TypeError):
        raise TeacherError(f"{base_url}/models does not return a list of models.") from None
