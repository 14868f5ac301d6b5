"""What a rule replaces and what it leaves: one line a case, values made up for this file."""

from __future__ import annotations

import random
import string

import pytest

from composer_hub.redact.match import PLACEHOLDER
from composer_hub.redact.text import redact_text
from composer_hub.redact.tokens import SHAPES


def place(label: str, value: str, rule: str) -> str:
    return f"[{label}_1]"


def drawn(length: int, alphabet: str = string.ascii_letters + string.digits, seed: int = 5) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(alphabet) for _ in range(length))


HEX = "0123456789abcdef"
B62 = drawn(80)
HIDDEN = {
    "github": (f"see ghp_{B62[:36]}.", "see [SECRET_1]."),
    "behind an escaped line end": (f"x\\nghp_{B62[:36]}", "x\\n[SECRET_1]"),
    "in colour": (f"\x1b[32mghp_{B62[:36]}\x1b[0m", "\x1b[32m[SECRET_1]\x1b[0m"),
    "a key coloured by grep": (f"\x1b[01;31mAPI_KEY\x1b[m={B62[:30]}", "\x1b[01;31mAPI_KEY\x1b[m=[SECRET_1]"),
    "a line of cat -n": (f"    12→TOKEN={B62[:30]}", "    12→TOKEN=[SECRET_1]"),
    "a line of a diff": (f"+API_KEY={B62[:30]}", "+API_KEY=[SECRET_1]"),
    "a vendor without a rule": (f"acme_live_{B62[:30]}", "[SECRET_1]"),
    "a slack webhook": (
        f"https://hooks.slack.com/services/T01/B02/{B62[:24]}", "https://hooks.slack.com/services/[SECRET_1]",
    ),
    "a discord bot": (f"MT{B62[:22]}.Gabc1d.{B62[30:68]}", "[SECRET_1]"),
    "an azure client secret": (f"abc8Q~{B62[:34]}", "[SECRET_1]"),
    "a jwt": (f"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{B62[:20]}.{B62[:43]}", "jwt [SECRET_1]"),
    "an ARN's neighbour": (f"AKIA{drawn(16, string.ascii_uppercase)} arn:aws:iam::1:x", "[SECRET_1] arn:aws:iam::1:x"),
    "an environment line": ("DB_PASSWORD=p@ss&w(rd9", "DB_PASSWORD=[SECRET_1]"),
    "yaml": ("  password: hunter22\n", "  password: [SECRET_1]\n"),
    "json": ('{"a": 1.0, "password": "Hunter2!x"}', '{"a": 1.0, "password": "[SECRET_1]"}'),
    "a named value of kubernetes": (
        "- name: DB_PASSWORD\n  value: s3cr3tV4l", "- name: DB_PASSWORD\n  value: [SECRET_1]",
    ),
    "python": ("connect(password='s3cr3t!pw')", "connect(password='[SECRET_1]')"),
    "a flag": ("tool --api-key " + B62[:20], "tool --api-key [SECRET_1]"),
    "mysql -p": (f"mysql -u root -p{B62[:12]} app", "mysql -u root -p[SECRET_1] app"),
    "curl -u": (f"curl -u bob:{B62[:12]} https://x.io", "curl -u bob:[SECRET_1] https://x.io"),
    "a url": ("postgres://app:s3cr3tpw@db.io/x", "postgres://app:[SECRET_1]@db.io/x"),
    "a url, @ in its password": ("redis://:s3c@r3tpw!@cache:6379/0", "redis://:[SECRET_1]@cache:6379/0"),
    "a url, a short part before the @": ("mysql://app:K7@m:zzq!@db/x", "mysql://app:[SECRET_1]@db/x"),
    "a bearer header": (f"Authorization: Bearer {B62[:30]}", "Authorization: Bearer [SECRET_1]"),
    "a basic header": ("Authorization: Basic c3ZjOmh1bnRlcjI=", "Authorization: Basic [SECRET_1]"),
    "netrc": (f"machine x.io login bob password {B62[:14]}", "machine x.io login bob password [SECRET_1]"),
    "npmrc": (f"//registry.npmjs.org/:_authToken={B62[:36]}", "//registry.npmjs.org/:_authToken=[SECRET_1]"),
    "a query": (f"GET /x?access_token={B62[:24]}&y=1", "GET /x?access_token=[SECRET_1]&y=1"),
    "padded base64 in a header": (f"Authorization: Token {B62[:34]}==", "Authorization: Token [SECRET_1]"),
    "an old npm token": (
        "//npm.io/:_authToken=2649c207-cac3-4262-a968-3936886ddd53", "//npm.io/:_authToken=[SECRET_1]",
    ),
    "a workflow's mask": (f"::add-mask::{B62[:20]}", "::add-mask::[SECRET_1]"),
    "an unseal key": (f"Unseal Key 1: {B62[:44]}", "Unseal Key 1: [SECRET_1]"),
    "a template's default": (
        f'variable "db_password" {{\n  default = "{B62[:18]}"\n}}',
        'variable "db_password" {\n  default = "[SECRET_1]"\n}',
    ),
    "a database prompt": (f"redis:6379> AUTH {B62[:18]}", "redis:6379> AUTH [SECRET_1]"),
    "a cookie for curl": (f"curl -b 'sid={B62[:40]}' https://x.io", "curl -b 'sid=[SECRET_1]' https://x.io"),
    "a bold label": (f"- **Password:** `{B62[:16]}`", "- **Password:** `[SECRET_1]`"),
    "a numbered pgpass line": (f"    41\tdb.io:5432:app:bob:{B62[:12]}", "    41\tdb.io:5432:app:bob:[SECRET_1]"),
    "a vendor's token in two parts": (f"ory_at_{B62[:40]}-x_.{B62[40:72]}", "[SECRET_1]"),
    "a registry's login": (f'"auth": "{B62[:43]}="', '"auth": "[SECRET_1]"'),
    "a credential passed": (f'NetworkCredential("svc", "{B62[:20]}")', 'NetworkCredential("svc", "[SECRET_1]")'),
    "a default in Ruby": (f"ENV['API_TOKEN'] ||= \"{B62[:20]}\"", "ENV['API_TOKEN'] ||= \"[SECRET_1]\""),
    "a key store": (f"keytool -storepass {B62[:13]} -keystore a.jks", "keytool -storepass [SECRET_1] -keystore a.jks"),
    "a piped password": (
        f"echo '{B62[:19]}' | docker login --password-stdin r.io",
        "echo '[SECRET_1]' | docker login --password-stdin r.io",
    ),
    "mail in a url": ("u?email=jane.doe%40acme.io&x=1", "u?email=[EMAIL_1]&x=1"),
    "mail": ("by jane.doe+x@acme.io, ok", "by [EMAIL_1], ok"),
    "mail behind an escape": ("x\\nalice@acme.io", "x\\n[EMAIL_1]"),
    "a git author": ("Author: Jane Doe <jane@acme.io>", "Author: [NAME_1] <[EMAIL_1]>"),
    "a public address": ("ssh deploy@51.37.197.72", "ssh deploy@[IP_1]"),
    "ipv6": ("via 2a01:4f8:c17:b8f::2 dev", "via [IP_1] dev"),
    "a phone": ("call +1 415 555 2671 now", "call [PHONE_1] now"),
    "a national phone": ("(415) 555-2671", "[PHONE_1]"),
    "a card": ("card 4539 1488 0343 6467.", "card [CARD_1]."),
    "an iban": ("to DE44500105175407324931", "to [IBAN_1]"),
    "a social security number": ("ssn 412-45-4321", "ssn [SSN_1]"),
    "a hardware address": ("ether a4:83:e7:12:9b:0c", "ether [MAC_1]"),
}  # fmt: skip

KEPT = {
    "a look-up in JavaScript": "apiKey: process.env.SERVICE_API_KEY,",
    "a look-up in Terraform": "password = random_password.db.result",
    "the ARN of a secret": "SecretId: arn:aws:secretsmanager:eu-west-1:799503411023:secret:prod/db-ZbQLwV",
    "a cache's key": "key: node-cache-Linux-x64-npm-" + drawn(64, HEX),
    "a commit": "commit " + drawn(40, HEX),
    "a digest": "sha256:" + drawn(64, HEX),
    "npm integrity": '"integrity": "sha512-' + drawn(86) + '=="',
    "go.sum": "github.com/pkg/errors v0.9.1 h1:" + drawn(43) + "=",
    "a uuid": "request_id=0f8fad5b-d9cb-469f-a165-70867728950e",
    "a tool call's id": "toolu_01" + drawn(22),
    "a bundle": "dist/index-" + drawn(24) + ".js",
    "the example key": "aws_access_key_id = AKIAIOSFODNN7EXAMPLE",
    "crosses": "OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx",
    "your key": 'api_key="your-api-key-here"',
    "a shell variable": "Authorization: Bearer ${SERVICE_TOKEN}",
    "an environment look-up": 'api_key = os.environ["SERVICE_KEY"]',
    "a call": "password = get_password(user)",
    "a type": "password: Optional[str] = None",
    "a limit": "max_tokens: 4096, prompt_tokens=11223344",
    "a form's label": '{"password": "Enter your password"}',
    "a secret's name": "secretKeyRef: my-database-secret",
    "a public key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + drawn(43),
    "a certificate": "-----BEGIN CERTIFICATE-----\n" + drawn(64) + "\n-----END CERTIFICATE-----",
    "a short base64 image": "data:image/png;base64,iVBORw0KGgo" + drawn(200),
    "a private network": "listening on 192.168.1.20 and 10.1.2.3 and 127.0.0.1",
    "documentation addresses": "203.0.113.9 and 198.51.100.2 and user@example.com",
    "a version": "Chrome/126.0.6478.127, version 10.4.35.2, pkg==1.22.33.44",
    "a service's sender": "Co-Authored-By: Claude <noreply@anthropic.com>",
    "a git remote": "git@github.com:corp/app.git",
    "a JSON number": '{"started": 4539148803436467, "x": "y"}',
    "a time": "2026-11-21T09:12:31.412Z took 1234.567 ms",
    "a decorator": "@pytest.mark.parametrize('password', ['a'])",
    "a generic home": "cd /home/runner/work && ls /Users/Shared",
}


@pytest.mark.parametrize(("text", "expected"), HIDDEN.values(), ids=HIDDEN)
def test_a_secret_or_personal_value_is_replaced_and_its_surroundings_stay(text: str, expected: str) -> None:
    assert redact_text(text, place) == expected


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_look_alike_stays_as_it_is(text: str) -> None:
    assert redact_text(text, place) == text


def test_rule_names_are_unique() -> None:
    names = [rule.name for rule in SHAPES]
    assert len(set(names)) == len(names)


KEY = "\n".join(drawn(64, seed=i) for i in range(10))


@pytest.mark.parametrize("text", [
    f"-----BEGIN RSA PRIVATE KEY-----\n{KEY}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{KEY}\n",
    "-----BEGIN PRIVATE KEY-----\\n" + KEY.replace("\n", "\\n") + "\\n-----END PRIVATE KEY-----\\n",
    "".join(f"{i:>6}→{line}\n" for i, line in enumerate(["-----BEGIN EC PRIVATE KEY-----", *KEY.split("\n")], start=1)),
    "+" + f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----".replace("\n", "\n+"),
    f"{KEY}\n-----END PRIVATE KEY-----",
], ids=["whole", "end cut off", "escaped", "numbered lines", "in a diff", "beginning cut off"])  # fmt: skip
def test_no_line_of_a_private_key_is_left(text: str) -> None:
    redacted = redact_text(text, place)
    assert not [line for line in KEY.split("\n") if line in redacted]


def test_a_picture_is_dropped_and_what_stands_around_it_stays() -> None:
    picture = "data:image/png;base64,iVBORw0KGgo" + drawn(3000)
    assert redact_text(f"before {picture} after", place) == "before [IMAGE] after"


def test_a_placeholder_is_never_taken_for_a_value() -> None:
    text = "password=[SECRET_3] Authorization: Bearer [SECRET_x0123456789abcdef] https://u:[SECRET_4]@x.io "
    text += "[EMAIL_2] /home/[USER_1]/x"
    assert redact_text(text, place) == text
    assert len(PLACEHOLDER.findall(text)) == 5
