"""Which names promise a secret, and which rule a report blames for a replacement."""

from __future__ import annotations

from types import ModuleType

import pytest

import composer_hub.redact
from composer_hub.redact import Redactor
from composer_hub.redact.finders import FINDERS, find
from composer_hub.redact.names import promise_of

RANDOM = "x8Kf02mQpz71LwVt"


@pytest.mark.parametrize(
    "name", ["user_path", "file_pattern", "apply_patch", "USER_PATH", "is_passive", "keyboard", "KEYNOTE"]
)
def test_a_stem_inside_a_longer_part_of_a_name_promises_nothing(name: str) -> None:
    assert promise_of(name) == ("", "")
    assert not find(f'{name} = "{RANDOM}"')


@pytest.mark.parametrize(("name", "promise"), [
    ("github_pat", ("token", "_pat")),
    ("GITHUB_PAT", ("token", "_pat")),
    ("my_pats", ("token", "_pat")),
    ("dbPassword", ("password", "passw")),
    ("db_pass", ("password", "_pass")),
    ("api_key", ("token", "key")),
    ("apiKeys", ("token", "key")),
    ("someKeyValue", ("key", "key")),
    ("accessToken", ("token", "token")),
])  # fmt: skip
def test_a_stem_that_makes_up_parts_of_a_name_promises_a_secret(name: str, promise: tuple[str, str]) -> None:
    assert promise_of(name) == promise


@pytest.mark.parametrize(("text", "rule"), [
    (f'github_pat = "{RANDOM}"', "named:_pat"),
    (f"API_TOKEN={RANDOM}", "named:token"),
    (f"mysql -u root -p{RANDOM} app", "command:mysql"),
    ("Das Kennwort lautet Lagoon?Tundra3018", "sentence:kennwort"),
    (f"| user | password |\n|---|---|\n| bob | {RANDOM} |", "column:passw"),
    ("conn.login('bob', 'Lagoon?Tundra3018')", "call:login"),
    ("see ghp_aZ3kQ9xW7mP2rT5vB8nC1dF4gH6jL0sY", "github"),
])  # fmt: skip
def test_the_name_of_a_rule_identifies_what_fired(text: str, rule: str) -> None:
    redactor = Redactor(b"salt")
    redactor.text(text)
    assert redactor.report.to_dict()["by_rule"] == {rule: 1}


def test_finders_can_be_chosen() -> None:
    text = f"API_TOKEN={RANDOM} jane.doe@acme.io"
    assert {span.label for span in find(text)} == {"SECRET", "EMAIL"}
    mail = tuple(finder for finder in FINDERS if finder.__name__ == "mail_addresses")
    assert [span.label for span in find(text, mail)] == ["EMAIL"]


def test_the_public_names_of_the_room_are_its_api() -> None:
    public = {name for name, value in vars(composer_hub.redact).items() if name[0] != "_" and not _is_module(value)}
    assert public == set(composer_hub.redact.__all__)


def _is_module(value: object) -> bool:
    return isinstance(value, ModuleType)
