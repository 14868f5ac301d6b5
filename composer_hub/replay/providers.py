"""Providers: everything that distinguishes one way to reach a teacher from the others, one record each.

In: the address of a teacher as a user writes it. Out: its provider, base URL, model and server. No other module asks
which provider it deals with: it reads a field of the record, or calls one of its functions.

    hf:org/model:provider                  Hugging Face Inference Providers
    openrouter:vendor/model[@provider]     OpenRouter
    http://host:port/v1#model              vLLM, `transformers serve`, llama.cpp, `composer-hub teachers serve`

AGENTS.md has the recipe for a new provider, and for a new quirk of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from composer_hub import exits
from composer_hub.money import TokenPrice
from composer_hub.replay import prices


class TeacherError(exits.UsageError):
    """A teacher cannot be used as it was named."""


def _no_key() -> str:
    return ""


def hf_key() -> str:
    """Return the token that `hf auth login` has stored."""
    from huggingface_hub import get_token

    return get_token() or ""


def _plain_id(model: str, server: str) -> str:
    return model


def _id_with_server(model: str, server: str) -> str:
    return f"{model}:{server}"


def _nothing_extra(server: str, distillable_only: bool) -> dict[str, Any]:
    return {}


def openrouter_body(server: str, distillable_only: bool) -> dict[str, Any]:
    """Pin the server and refuse models that may not be distilled."""
    # `only` instead of `order`, which would switch sticky routing off.
    pinned = {"only": [server], "allow_fallbacks": False} if server else {}
    return {"provider": {**pinned, "require_parameters": True, "enforce_distillable_text": distillable_only}}


@dataclass(frozen=True, slots=True)
class Provider:
    """A service that serves models, or the way to any OpenAI-compatible server."""

    name: str
    form: str  # of a teacher's address, for messages
    base_url: str = ""  # empty: part of each address
    key_env: str = ""
    stored_key: Callable[[], str] = _no_key  # used if the variable is not set
    pin_mark: str = ""  # separates the model from its pinned server
    unpinned: frozenset[str] = frozenset()  # servers that cannot be taken, because they differ from call to call
    model_id: Callable[[str, str], str] = _plain_id  # (model, server) -> the model as requests name it
    extra_body: Callable[[str, bool], dict[str, Any]] = _nothing_extra  # (server, distillable only) -> request fields
    read_price: Callable[..., TokenPrice | None] = prices.from_entry  # see `prices`
    lists_every_model: bool = True  # a model missing from /models does not exist
    cache_key: str = ""  # the request field that keeps a lane on one cache
    marked_families: frozenset[str] = frozenset()  # families that need explicit cache marks
    bills_errors: bool = True  # whether a 5xx may be billed
    cap_advice: str = ""  # how to set a second cap on the provider's side
    generation_path: str = ""  # for looking up the cost of one call by its id
    usage_path: str = ""  # for reading everything that a key has spent


HF = Provider(
    name="hf",
    form="hf:org/model:provider",
    base_url="https://router.huggingface.co/v1",
    key_env="HF_TOKEN",
    stored_key=hf_key,
    pin_mark=":",
    unpinned=frozenset({"", "fastest", "cheapest", "preferred"}),
    model_id=_id_with_server,
    read_price=prices.from_offers,
    bills_errors=False,
    cap_advice="As a second safeguard, set a spending limit for the paying organization (settings, billing).",
)
OPENROUTER = Provider(
    name="openrouter",
    form="openrouter:vendor/model[@provider]",
    base_url="https://openrouter.ai/api/v1",
    key_env="OPENROUTER_API_KEY",
    pin_mark="@",
    extra_body=openrouter_body,
    read_price=prices.from_pricing,
    cache_key="session_id",
    marked_families=frozenset({"anthropic"}),
    bills_errors=False,
    cap_advice="As a second safeguard, give the OpenRouter key a credit limit equal to the cap.",
    generation_path="/generation",
    usage_path="/key",
)
SERVER = Provider(
    name="url",
    form="URL#model",
    lists_every_model=False,
    # Few servers offer these; the embedded teachers do.
    generation_path="/generation",
    usage_path="/key",
)

PROVIDERS: tuple[Provider, ...] = (HF, OPENROUTER, SERVER)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a model."""

    provider: Provider
    base_url: str
    model: str
    server: str = ""  # the provider that a router is pinned to: another one has another cache and another price


def parse_address(text: str) -> Address:
    """Read a teacher's address."""
    word, _, rest = text.partition(":")
    for provider in PROVIDERS:
        if provider.base_url and word == provider.name:
            model, _, server = rest.partition(provider.pin_mark)
            address = Address(provider, provider.base_url, model, server)
            break
    else:
        if not text.startswith(("http://", "https://")) or "#" not in text:
            raise TeacherError(f"Teacher {text!r}: write it as {', '.join(one.form for one in PROVIDERS)}.")
        url, _, model = text.partition("#")
        address = Address(SERVER, url.rstrip("/"), model)
    if not address.model:
        raise TeacherError(f"Teacher {text!r} has no model.")
    if address.server in address.provider.unpinned:
        raise TeacherError(
            f"Teacher {text}: pin a provider, {word}:{address.model}{address.provider.pin_mark}PROVIDER. An unpinned "
            "model changes servers between steps, which loses the cache and mixes answers of different deployments."
        )
    return address
