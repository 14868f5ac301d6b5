"""Teachers are pinned, priced and allowed before anything is sent, or refused with the next step."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from click.testing import CliRunner
from huggingface_hub.utils import httpx

from composer_hub import exits
from composer_hub.cli.teachers import teachers as teachers_command
from composer_hub.money import NANO
from composer_hub.replay import plan
from composer_hub.replay.client import ChatRequest, Client, connections
from composer_hub.replay.prices import PriceError, per_million
from composer_hub.replay.providers import HF, OPENROUTER, PROVIDERS, Address, Provider, TeacherError, parse_address
from composer_hub.replay.teachers import (
    _OPTIONS,
    Teacher,
    fetch_models,
    is_loopback,
    key_of,
    parse_names,
    read_file,
    resolve,
    unlisted_notes,
)
from tests.replay.sample import TOOL, trace_of

OPENROUTER_LIST = [
    {
        "id": "z-ai/glm-5.3", "canonical_slug": "z-ai/glm-5.3-20260901", "context_length": 200000,
        "pricing": {"prompt": "0.0000014", "completion": "0.0000044", "input_cache_read": "0.00000026"},
    },
    {
        "id": "anthropic/claude-opus-4.7",
        "pricing": {"prompt": "0.000005", "completion": "0.000025", "input_cache_write": "0.00000625"},
    },
    {"id": "acme/frontier", "pricing": {"prompt": "0.000001", "completion": "0.000001"}},
    {"id": "acme/open", "is_trainable_text": True, "pricing": {"prompt": "0.000009", "completion": "0.000001"}},
]  # fmt: skip
HF_LIST = [
    {
        "id": "deepseek-ai/DeepSeek-V4-Pro",
        "providers": [
            {"provider": "novita", "pricing": {"input": 1.32, "output": 3.96}, "context_length": 128000},
            {"provider": "plain", "pricing": {"input": 1, "output": 3}, "supports_tools": False},
            {"provider": "scaleway"},
        ],
    }
]
KEYS = {"OPENROUTER_API_KEY": "sk-or-secret", "HF_TOKEN": "hf_secret"}


LISTS = {OPENROUTER.base_url: OPENROUTER_LIST, HF.base_url: HF_LIST}


def listed(base_url: str, key: str) -> list[dict[str, Any]]:
    return LISTS.get(base_url, [])


def one(at: str, **options: Any) -> Teacher:
    (teacher,) = resolve([{"at": at}], list_models=listed, environ=KEYS, **options)
    return teacher


def test_an_openrouter_teacher_is_priced_pinned_and_kept_to_distillable_models() -> None:
    teacher = one("openrouter:z-ai/glm-5.3@z-ai")
    assert (teacher.name, teacher.family, teacher.context_length) == ("glm-5.3", "zhipu", 200000)
    assert teacher.price.caches
    assert teacher.serves == ("z-ai/glm-5.3-20260901",)
    body = teacher.extra_body("lane")
    assert body["session_id"] == "lane"
    assert body["provider"] == {
        "only": ["z-ai"], "allow_fallbacks": False, "require_parameters": True, "enforce_distillable_text": True,
    }  # fmt: skip


def test_an_hf_teacher_is_sent_with_its_provider_and_without_unknown_fields() -> None:
    teacher = one("hf:deepseek-ai/DeepSeek-V4-Pro:novita")
    assert teacher.model_id == "deepseek-ai/DeepSeek-V4-Pro:novita"
    assert teacher.extra_body("lane") == {}
    assert (teacher.context_length, teacher.price.caches) == (128000, False)


@pytest.mark.parametrize("provider", [one for one in PROVIDERS if one.base_url], ids=lambda one: one.name)
def test_an_address_names_its_provider_model_and_server(provider: Provider) -> None:
    address = parse_address(f"{provider.name}:org/model{provider.pin_mark}here")
    assert address == Address(provider, provider.base_url, "org/model", "here")


def unreachable(base_url: str, key: str) -> list[dict[str, Any]]:
    raise TeacherError(f"{base_url} cannot be reached (no network).")


def only_with_key(base_url: str, key: str) -> list[dict[str, Any]]:
    if not key:
        raise TeacherError(f"{base_url}/models answers 401. Check the address and the key.")
    return listed(base_url, key)


def spec_of(provider: Provider, model: str = "deepseek-v4-pro", **options: Any) -> dict[str, Any]:
    at = provider.form.replace("vendor/model[@provider]", model).replace("org/model", model)
    at = at.replace("URL", "https://teachers.example/v1").replace("#model", f"#{model}").replace(":provider", ":novita")
    return {"at": at, "key_env": "SOME_KEY", **options}


@pytest.mark.parametrize("list_models", [unreachable, only_with_key])
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_a_plan_needs_neither_key_nor_list_of_any_provider(provider: Provider, list_models: Any) -> None:
    specs = [spec_of(provider), spec_of(provider, "mystery-1", price="1/2")]
    teachers = resolve(specs, list_models=list_models, planning=True, accepted=["mystery-1"], environ={})
    stamps = {one.name: one.price.stamp.split()[0] for one in teachers}
    assert stamps == {"mystery-1": "given", "deepseek-v4-pro": "table"}
    (note,) = notes = list(unlisted_notes(teachers))
    assert note.startswith(teachers[0].base_url)
    assert "mystery-1 (given" in note
    planned = plan([trace_of(3)], teachers)
    assert [note for note in planned.notes(NANO) if note in notes] == notes
    with pytest.raises(TeacherError, match="SOME_KEY"):
        resolve(specs, list_models=list_models, environ={})


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_a_plan_names_the_price_that_only_the_list_would_show(provider: Provider) -> None:
    with pytest.raises(TeacherError, match=r"price is unknown\. .* cannot be reached .*--price mystery-1="):
        resolve([spec_of(provider, "mystery-1")], list_models=unreachable, planning=True, environ={})


def test_a_price_of_a_list_that_cannot_be_read_is_refused_with_its_teacher_and_its_list() -> None:
    entry = {"id": "acme/odd", "is_trainable_text": True, "pricing": {"prompt": "NaN", "completion": "1"}}
    with pytest.raises(PriceError, match=r"Teacher odd, in the list of openrouter\.ai \S+: 'NaN' is not a price"):
        resolve([{"at": "openrouter:acme/odd"}], list_models=lambda base_url, key: [entry], environ=KEYS)


def test_teachers_are_sorted_by_price() -> None:
    specs = parse_names("openrouter:acme/open, openrouter:z-ai/glm-5.3")
    assert [t.name for t in resolve(specs, list_models=listed, environ=KEYS)] == ["glm-5.3", "open"]


@pytest.mark.parametrize(
    "at", ["openrouter:anthropic/claude-opus-4.7", "openrouter:acme/frontier"], ids=["forbidden", "unknown"]
)
def test_a_teacher_that_may_not_be_trained_on_is_refused_until_its_terms_are_accepted(at: str) -> None:
    with pytest.raises(exits.Refused, match="--accept-terms") as caught:
        one(at)
    assert caught.value.exit_code == exits.REFUSED
    accepted = one(at, accepted=[at.rsplit("/", 1)[1]])
    assert accepted.extra_body("lane")["provider"]["enforce_distillable_text"] is False


def test_claude_routes_get_cache_marks_and_others_do_not() -> None:
    assert one("openrouter:anthropic/claude-opus-4.7", accepted=["claude-opus-4.7"]).cache_marks
    assert not one("openrouter:acme/open").cache_marks


@pytest.mark.parametrize(("at", "sign"), [
    ("glm-5.3", "write it as hf:"),
    ("http://127.0.0.1:1/v1", "URL#model"),
    ("http://127.0.0.1:1/v1#", "has no model"),
    ("hf:deepseek-ai/DeepSeek-V4-Pro", "pin a provider"),
    ("hf:deepseek-ai/DeepSeek-V4-Pro:cheapest", "pin a provider"),
    ("hf:deepseek-ai/DeepSeek-V4-Pro:together", "Providers: novita, plain, scaleway"),
    ("hf:deepseek-ai/DeepSeek-V4-Pro:plain", "without tools"),
    ("hf:org/none:novita", "lists no model"),
    ("openrouter:org/none", "lists no model"),
    ("http://127.0.0.1:1/v1#mine", "--price mine="),
])  # fmt: skip
def test_a_teacher_that_cannot_be_used_is_refused_with_a_reason(at: str, sign: str) -> None:
    with pytest.raises(TeacherError, match=sign):
        one(at)


def test_a_route_without_a_price_takes_the_given_one_or_the_dated_table() -> None:
    table = one("hf:deepseek-ai/DeepSeek-V4-Pro:scaleway")
    assert table.price.stamp.startswith("table 20")
    given = one("http://127.0.0.1:1/v1#mine", given={"mine": per_million("0", "0", stamp="given")})
    assert given.price.worst_case(10**6, 10**6) == 0


def test_an_option_for_an_unknown_teacher_is_an_error() -> None:
    with pytest.raises(TeacherError, match="No teacher is called other"):
        one("openrouter:acme/open", given={"other": per_million("1", "1")})


def test_two_teachers_with_the_same_name_need_names() -> None:
    specs = [{"at": "openrouter:acme/open"}, {"at": "openrouter:acme/open@x"}]
    with pytest.raises(TeacherError, match="called open"):
        resolve(specs, list_models=listed, environ=KEYS)
    renamed = [specs[0], {**specs[1], "name": "pinned"}]
    assert {t.name for t in resolve(renamed, list_models=listed, environ=KEYS)} == {"open", "pinned"}


@pytest.mark.parametrize("ending", ["json", "toml", "yaml"])
def test_a_teachers_file_may_be_json_toml_or_yaml(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"teachers.{ending}"
    spec = {"at": "http://127.0.0.1:1/v1#mine", "price": "1/2", "max_tokens": 100, "serves": ["other"]}
    text = json.dumps({"teachers": [spec]})
    if ending == "toml":
        text = '[[teachers]]\nat = "http://127.0.0.1:1/v1#mine"\nprice = "1/2"\nmax_tokens = 100\nserves = ["other"]\n'
    path.write_text(text)
    (teacher,) = resolve(read_file(path), list_models=listed, environ={})
    assert (teacher.max_tokens, teacher.serves, teacher.price.rates.output) == (100, ("other",), 2_000_000)


@pytest.mark.parametrize("text", ["", "[", "{}", '{"teachers": []}', '{"teachers": [{"model": "x"}]}', "3"])
def test_a_file_without_teachers_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "teachers.json"
    path.write_text(text)
    with pytest.raises(TeacherError, match="teachers"):
        read_file(path)


def test_an_unknown_option_of_a_teacher_is_named() -> None:
    with pytest.raises(TeacherError, match="unknown option speed"):
        resolve([{"at": "openrouter:acme/open", "speed": 1}], list_models=listed, environ=KEYS)


AT = "http://127.0.0.1:1/v1#mine"
HINTS = {**get_type_hints(Teacher), "price": str}
WRONG: dict[Any, list[Any]] = {
    str: [5, None, ["X"], "a\ud800b", "two\nlines", True],
    bool: [1, "yes", None],
    int: ["500", "x", 1.5, -1, -1_000_000, True, None, [1], 10**30],
    float: ["1", -1, math.nan, math.inf, True, None],
    tuple[str, ...]: ["one", [1], None, {"a": 1}],
    Mapping[str, Any]: [[1], "x", None, {"d": date(2020, 1, 1)}, {1: 2}, {"a": math.nan}, {"a": "\ud800"}],
}


@pytest.mark.parametrize("option", sorted(_OPTIONS))
def test_an_option_of_another_kind_or_out_of_range_is_named_with_its_teacher_and_file(
    option: str, tmp_path: Path
) -> None:
    path = tmp_path / "teachers.yaml"
    zeros = [0] if option in ("max_tokens", "max_concurrency", "timeout_s") else []
    for value in [*WRONG[HINTS[option]], *zeros, *([""] if option == "name" else [])]:
        path.write_text(yaml.safe_dump({"teachers": [{"at": AT, option: value}]}))
        with pytest.raises(TeacherError, match=rf"teachers.yaml: Teacher {AT}: {option} must be "):
            read_file(path)


@pytest.mark.parametrize("depth", [150, 900, 100_000])
@pytest.mark.parametrize("ending", ["json", "yaml"])
def test_a_file_nested_too_deeply_is_refused(ending: str, depth: int, tmp_path: Path) -> None:
    path = tmp_path / f"teachers.{ending}"
    nested = "[" * depth + "]" * depth
    path.write_text(f'{{"teachers": [{{"at": "{AT}", "params": {{"a": {nested}}}}}]}}')
    with contextlib.suppress(TeacherError):
        json.dumps(read_file(path))


@pytest.mark.parametrize("at", [
    AT, "openrouter:z-ai/glm-5.3@z-ai", "hf:deepseek-ai/DeepSeek-V4-Pro:novita",
])  # fmt: skip
def test_params_cannot_replace_what_a_request_has_or_what_bounds_its_cost(at: str) -> None:
    spec, sent = {"at": at, "price": "1/2"}, dict[str, Any]()

    def answer(request: httpx.Request) -> httpx.Response:
        sent.update(json.loads(request.content))
        return httpx.Response(200, json={})

    async def ask(teacher: Teacher) -> None:
        async with connections([teacher], lambda: httpx.MockTransport(answer)):
            client = Client(teacher, "")
            await client.ask(ChatRequest([{"role": "user", "content": "x"}], [TOOL], "lane"))
            await client.close()

    asyncio.run(ask(*resolve([spec], list_models=listed, environ=KEYS)))
    assert {"model", "messages", "max_tokens", "tools"} <= set(sent)
    for key in [*sent, "n", "max_completion_tokens", "stream", "stream_options"]:
        with pytest.raises(TeacherError, match=f"Teacher {at}: params and cache_key may not set {key}:"):
            resolve([{**spec, "params": {"temperature": 0, key: 1}}], list_models=listed, environ=KEYS)
    with pytest.raises(TeacherError, match="may not set max_tokens"):
        resolve([{**spec, "cache_key": "max_tokens"}], list_models=listed, environ=KEYS)
    (free,) = resolve([{**spec, "params": {"temperature": 0}}], list_models=listed, environ=KEYS)
    assert free.extra_body("lane")["temperature"] == 0


def test_a_list_with_strange_lengths_and_families_leaves_them_unknown() -> None:
    entries = [{"id": "mine", "context_length": "x", "family": 5}]
    (teacher,) = resolve([{"at": AT, "price": "1/2"}], list_models=lambda url, key: entries, environ={})
    assert (teacher.context_length, teacher.family) == (0, "5")


@pytest.mark.parametrize("key", ["", "bad\nkey", "k\u00e9y"], ids=["missing", "newline", "letters"])
def test_an_invalid_key_is_refused_without_being_shown(key: str) -> None:
    teacher = Teacher("t", "m", "https://x/v1", key_env="SOME_KEY")
    with pytest.raises(TeacherError, match="SOME_KEY") as caught:
        key_of(teacher, {"SOME_KEY": key})
    assert not key or key not in str(caught.value)


@pytest.mark.parametrize(("url", "loopback"), [
    ("http://127.0.0.1:1/v1", True),
    ("http://localhost/v1", True),
    ("http://[::1]:8/v1", True),
    ("http://10.0.0.1/v1", False),
    ("https://127.0.0.1.evil.com/v1", False),
    ("http://localhost.evil.com/v1", False),
])  # fmt: skip
def test_only_this_machine_is_loopback(url: str, loopback: bool) -> None:
    assert is_loopback(url) is loopback


def test_an_unreachable_server_is_named() -> None:
    with pytest.raises(TeacherError, match=r"http://127\.0\.0\.1:9/v1 cannot be reached \(.*Connection refused"):
        fetch_models("http://127.0.0.1:9/v1", "")


def test_the_file_that_init_writes_can_be_read_and_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "teachers.yaml"
    assert CliRunner().invoke(teachers_command, ["init", "--out", str(path)]).exit_code == 0
    specs = read_file(path)
    addresses = [parse_address(spec["at"]) for spec in specs]
    assert {address.provider.name for address in addresses} == {"hf", "openrouter"}
    commented = path.read_text().replace("\n#  ", "\n  ")
    path.write_text(commented)
    found = resolve(read_file(path)[-1:], list_models=lambda url, key: [], environ={"MY_KEY": "k"})
    assert (found[0].name, found[0].family, found[0].key_env) == ("local", "qwen", "MY_KEY")
    again = CliRunner().invoke(teachers_command, ["init", "--out", str(path)])
    assert isinstance(again.exception, exits.UsageError)
    assert path.read_text() == commented
