"""Secrets that only two messages together give away, or that come back in another spelling."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote

import pytest

from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.needles import Needles

SECRET = "qX7vK2mR9tLw4ZpB8nHd" + "3JfG6sYc"
SIGNS = "k7#Tq-w2&Zx_p/9 Q".replace(" ", "")


def shown(*messages: Message) -> str:
    redacted = Redactor(b"salt").trace(Trace("t", "x", "s", messages, ()))
    texts = [(m.content, [call.arguments for call in m.tool_calls]) for m in redacted.messages]
    return json.dumps(texts, ensure_ascii=False)


def ran(name: str, arguments: dict[str, object], output: str, call: str = "c1") -> tuple[Message, Message]:
    return (
        Message("assistant", "", (ToolCall(name, arguments, call),)),
        Message("tool", output, tool_call_id=call, name=name),
    )


PRINTED = {
    "a variable": ran("Bash", {"command": "printenv STRIPE_KEY"}, SECRET),
    "a password manager": ran("Bash", {"command": "op read op://vault/db/field"}, "Tr0ub4dor-Zx"),
    "a file of secrets": ran("Read", {"file_path": "/run/secrets/db_password"}, "     1→Zx81kq2L!w"),
    "a decoded field": ran("Bash", {"command": "kubectl get secret x -o json | base64 -d"}, "Zx81kq2L!w"),
    "an exec session": ran("exec", {"cmd": "openssl rand -base64 24"}, "Wall time: 0.1\nOutput:\n" + SECRET),
    "a tool for secrets": ran("get_secret", {"name": "DB_PASSWORD"}, json.dumps({"result": SECRET})),
    "an answer": (Message("assistant", "What is the password for staging?"), Message("user", "Zx81kq2L!w")),
    "an answer with words": (Message("assistant", "Which API key?"), Message("user", f"take {SECRET}, please")),
    "a prompt": (
        *ran("Bash", {"command": "sudo -S ls"}, "[sudo] password for kim: "),
        *ran("write_stdin", {"chars": "Zx81kq2L\n"}, "ok", "c2"),
    ),
    "a form": ran("browser_type", {"element": "Password field", "ref": "e12", "text": "Zx81kq2L!w"}, "done"),
    "a form of fields": ran("fill", {"fields": [{"name": "API token", "value": SECRET}]}, "done"),
    "a document of secrets": ran(
        "Bash", {"command": "rails credentials:show"}, f"mail:\n  user_name: x@example.com\nline_notify: {SECRET}\n"
    ),
    "an answer among other words": (
        Message("assistant", "What is the passphrase?"),
        Message("user", "oh right it was Zx81kq2L"),
    ),
    "two outputs": (
        *ran("poll", {"id": 1}, "key ghp_" + SECRET[:9]),
        *ran("poll", {"id": 1}, SECRET[9:] + "aZ3kQ9xW ok", "c2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("messages", PRINTED.values(), ids=PRINTED)
def test_a_value_that_another_message_explains_is_replaced(messages: tuple[Message, ...]) -> None:
    text = shown(*messages)
    assert "SECRET_x" in text
    for value in (SECRET[:9], SECRET[9:], "Tr0ub4dor", "Zx81kq2L"):
        assert value not in text


HEX = "4f9d2c81aa07e3b5cc6d1e2f3a4b5c6d7e8f9a0b"
KEPT = {
    "a commit": ran("Bash", {"command": "git log -1 --format=%H -- auth/token.go"}, HEX),
    "a digest": ran("Bash", {"command": "sha1sum token.txt | cut -d' ' -f1"}, HEX),
    "a count": ran("Bash", {"command": "grep -c password app.py"}, "1234567"),
    "a file": ran("Bash", {"command": "ls secrets"}, "credentials.enc.yaml"),
    "a test": ran("Bash", {"command": "go test -run TestTokenRefresh"}, "ok"),
    "an id": (Message("tool", "the primary key\nCheckpoint ID: 66259f1a9213"), Message("user", "Look at 66259f1a9213")),
    "a sentence": (Message("assistant", "Shall I reset the password?"), Message("user", "please check login first")),
    "a label": ran("browser_type", {"element": "Password field", "text": "Enter your password"}, "done"),
}  # fmt: skip


@pytest.mark.parametrize("messages", KEPT.values(), ids=KEPT)
def test_what_only_looks_like_an_explained_value_is_kept(messages: tuple[Message, ...]) -> None:
    assert "_x" not in shown(*messages)


SPELLED = {
    "json": json.dumps(json.dumps(SIGNS)),
    "a url": f"https://x.io/?v={quote(SIGNS, safe='')}",
    "html": html.escape(f"<b>{SIGNS}</b>"),
    "base64": base64.b64encode(f"user:{SIGNS}@".encode()).decode(),
    "hexadecimal": SIGNS.encode().hex(),
    "another case": SIGNS.upper(),
}


@pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED)
def test_a_value_is_found_again_however_it_is_spelled(spelled: str) -> None:
    assert spelled not in shown(Message("user", f"PASSWORD='{SIGNS}'"), Message("user", f"see {spelled} there"))


BROKEN = {
    "in groups": "-".join(SECRET[i : i + 4] for i in range(0, len(SECRET), 4)),
    "over lines": SECRET[:13] + "\n    " + SECRET[13:],
    "as literals": f'k = "{SECRET[:13]}" + "{SECRET[13:]}"',
    "cut short": SECRET[:16] + "…",
    "the rest": SECRET[-14:],
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_the_parts_of_a_known_value_are_replaced(broken: str) -> None:
    text = shown(Message("user", f"API_KEY={SECRET}"), Message("user", f"see {broken} there"))
    assert SECRET[:12] not in text
    assert SECRET[-12:] not in text
    assert SECRET[:4] + "-" + SECRET[4:8] not in text


def test_the_beginning_that_tokens_of_one_kind_share_is_no_part_of_a_secret() -> None:
    other = SECRET[:16] + SECRET[:15:-1]
    text = shown(Message("user", f"API_KEY={SECRET}"), *ran("Bash", {"command": "cat log"}, f"see {other} there"))
    assert f"see {other} there" in text


def test_the_parts_of_a_value_in_code_leave_the_code_whole() -> None:
    text = shown(
        Message("user", f"API_KEY={SECRET}"), Message("assistant", "Done."), Message("user", BROKEN["as literals"])
    )
    placeholder = Redactor(b"salt").placeholder("SECRET", SECRET)
    assert f'k = \\"{placeholder}\\" + \\"{placeholder}\\"' in text


def test_a_user_who_is_also_a_program_is_not_a_person() -> None:
    home = Message("user", "/home/gradle/.gradle/caches and /home/kimtanaka/x")
    text = shown(home, *ran("Bash", {"command": "gradle build && ls"}, "Starting a Gradle Daemon for kimtanaka"))
    assert "gradle build" in text
    assert "/home/gradle/" in text
    assert "kimtanaka" not in text


def test_people_are_found_in_objects_by_what_is_beside_them() -> None:
    account = {"login": "kq-roberts", "avatar_url": "https://x.io/1", "type": "User", "name": "Kim Roberts"}
    text = shown(
        Message("tool", json.dumps([account, {"email": "jo@acme.io", "name": "Jo Marsh"}, {"name": "Main Menu"}]))
    )
    assert "roberts" not in text.lower()
    assert "Marsh" not in text
    assert "Main Menu" in text


def test_needles_are_found_once_the_longest_first() -> None:
    needles = Needles(["ann", "anna", "annabel", "bo"])
    assert list(needles.find("annabel ann annab bo ab")) == [(0, "annabel"), (8, "ann"), (12, "anna"), (18, "bo")]
    assert not list(Needles([]).find("anything"))


def test_thousands_of_users_are_replaced_in_one_pass() -> None:
    users = [f"pq{i:04d}x" for i in range(4000)]
    passwd = "\n".join(f"{user}:x:{i}:{i}::/home/{user}:/bin/sh" for i, user in enumerate(users))
    text = shown(Message("tool", passwd), Message("user", f"ask {users[7]} and {users[3999]}"))
    assert not [user for user in users if user in text]


HIDDEN = {
    "a login": "user kim:Tr0ub4dor!x",
    "a configuration": f"# app\nlog=info\nAPI_TOKEN={SECRET}\nport=80\n",
    "wrapped": "# config\n" + "name=app\n" * 12 + f"API_TOKEN={SECRET}\n",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_document_that_only_its_encoding_hides_is_opened(name: str) -> None:
    document = HIDDEN[name].removeprefix("user ").encode()
    code = base64.b64encode(document).decode()
    wrapped = "\n".join(code[i : i + 76] for i in range(0, len(code), 76))
    assert wrapped.split("\n")[0] not in shown(Message("user", f"{wrapped}\n")).replace("\\n", "\n")
    assert document.hex() not in shown(Message("user", f"data {document.hex()}"))


def test_an_encoded_document_without_a_secret_stays() -> None:
    code = base64.b64encode(b"the quick brown fox jumps over the lazy dog").decode()
    assert code in shown(Message("user", f"data: {code}"))


@pytest.mark.parametrize("joint", ['" + "', '"\n    "', '" \\\n  "', '"\nKEY += "'], ids=repr)
def test_a_token_in_parts_is_found_and_its_code_stays_whole(joint: str) -> None:
    text = json.loads(shown(Message("user", f'KEY = "ghp_{SECRET[:14]}{joint}{SECRET[14:]}aZ3kQ9xW"')))[0][0]
    assert SECRET[:14] not in text
    assert SECRET[14:] not in text
    assert text.count('"') == 4
    assert joint in text
