"""A line of a setting, and what a person announces: words and numbers that are secrets, and those that are not."""

from __future__ import annotations

import pytest

from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.finders import find
from composer_hub.redact.settings import kind_of

HIDDEN = {
    "a variable": ("DB_PASSWORD=brunnenkresse\n", "brunnenkresse"),
    "YAML between other settings": ("mqtt:\n  user: node\n  password: brunnenkresse\n", "brunnenkresse"),
    "words with dashes": ("auth_token: molch-am-ufer\nport: 8080\n", "molch-am-ufer"),
    "a flag": ("backup --password brunnenkresse --verbose", "brunnenkresse"),
    "an attribute": (f'<machineKey validationKey="{"A7C3" * 2}{"9F1B0D5E" * 3}" />', f"{'A7C3' * 2}{'9F1B0D5E' * 3}"),
    "a key in hexadecimal": (
        "  - routing_key: 4b1f09a7d83e5c62b0a94e7f1d2c8836\n    x: 1",
        "4b1f09a7d83e5c62b0a94e7f1d2c8836",
    ),
    "a key of numbers": (
        "network_key: [31, 7, 208, 93, 16, 250, 17, 72, 135, 4, 219, 58, 1, 190, 3, 6]",
        "[31, 7, 208, 93, 16, 250, 17, 72, 135, 4, 219, 58, 1, 190, 3, 6]",
    ),
    "a code": ('alarm_code: "8351"\nzone: 2\n', "8351"),
}
KEPT = {
    "a type": "  password: string\n  name: string\n",
    "a variable of a program": "password = user_password\nname = user_name\n",
    "a field of an object": "  password: hashedPassword,\n  name: userName,\n",
    "a validator": "  password: z.string().min(8),\n",
    "a reference": "DB_PASSWORD=${SECRET_FROM_VAULT}\nTOKEN=$(cat file)\n",
    "words about passwords": 'password: required\n"password": "Forgot password"\n',
    "the name of a secret": "secretName: postgres-credentials\npassword: db-password-prod\n",
    "a status code": "error_code: 4042\nexit_code: 137\nkey_code: 4451\n",
    "a count": "max_tokens: 4096\noutput tokens: 19619.6k\n",
    "a time beside a package": "ok  \texample.com/auth/tokens\t1.009s\n",
    "a password manager": 'provider = "1Password"\n\n[providers.1Password]\nvault = "main"\n',
    "a folder": 'Pwd: "D:/work/my-shop2"\n',
    "a type of bytes": "  ownerPrivateKey: Uint8Array,\n  other: string\n",
    "a session of a test": "sessionID: 2026-01-25-valid-1\n",
}


@pytest.mark.parametrize(("text", "value"), HIDDEN.values(), ids=HIDDEN)
def test_a_setting_is_found_whatever_its_value_looks_like(text: str, value: str) -> None:
    assert value in [text[span.start : span.end] for span in find(text)]


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_setting_without_a_secret_stays(text: str) -> None:
    assert [span for span in find(text) if span.label == "SECRET"] == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DB_PASSWORD", "password"),
        ("wlanKennwort", "password"),
        ("routing_key", "key"),
        ("alarm_code", "code"),
        ("NEXT_PAGE_TOKEN", ""),
        ("cacheKey", ""),
        ("status_code", ""),
        ("passwordMinLength", ""),
        ("key", ""),
    ],
)
def test_the_last_word_of_a_name_tells_what_it_holds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def redacted(*messages: tuple[str, str]) -> str:
    trace = Trace("t", "claude_code", "t", tuple(Message(role, content) for role, content in messages), ())
    return "\n".join(message.content for message in Redactor(salt=b"x").trace(trace).messages)


SAID = {
    "a word with dashes": ("Das WLAN-Passwort hab ich geändert, ist jetzt Amsel-im-Efeu-47", "Amsel-im-Efeu-47"),
    "a phrase": ("vault pw: Ein Dachs frisst 40 Kekse", "Ein Dachs frisst 40 Kekse"),
    "a phrase in a sentence": ("vault pw: Ein Dachs frisst 40 Kekse, use it", "Ein Dachs frisst 40 Kekse"),
    "a PIN": ("the alarm code is 8351", "8351"),
    "a one-time code in groups": ("second factor says 27 41 95", "27 41 95"),
    "a quotation": ("the password reads `olivo&timo12`, I think", "olivo&timo12"),
}


@pytest.mark.parametrize(("text", "value"), SAID.values(), ids=SAID)
def test_what_a_person_announces_is_replaced(text: str, value: str) -> None:
    assert value not in redacted(("user", text))


@pytest.mark.parametrize(
    "text",
    [
        "the password is wrong, please reset it",
        "All tests pass: `make lint` is clean",
        "refactor(token-exchange): clarify trust boundaries",
        "RFC 8252 describes the authcode flow",
        "the token is `GITHUB_TOKEN`",
    ],
)
def test_sentences_about_secrets_stay(text: str) -> None:
    assert redacted(("user", text)) == text


def test_a_code_that_was_announced_is_replaced_without_its_spaces_too() -> None:
    assert "274195" not in redacted(("user", "second factor says 27 41 95"), ("tool", "typed 274195 and connected"))


def test_a_login_beside_an_address_is_a_persons_and_that_of_a_service_is_not() -> None:
    assert "pbeaulieu" not in redacted(("tool", "username: pbeaulieu\nemail: p.b@bakery-north.fr\n"))
    assert "appserver" in redacted(("tool", "username: appserver\nemail: p.b@bakery-north.fr\n"))


def test_a_first_name_behind_a_cue_is_replaced() -> None:
    assert "Hildegard" not in redacted(("user", 'the label says "opened by Oma Hildegard"'))
