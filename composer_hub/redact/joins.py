"""Secrets that only two messages together give away: a command and what it prints, a question and its answer, a form's
field and what is typed into it, a value cut in two by the tool that polled it.

In: a trace. Out: `Join`s, each a value in one of its texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

from composer_hub.records import Message, ToolCall, Trace, strings_in
from composer_hub.redact.announced import announced_secrets, asks_for_code
from composer_hub.redact.data import words
from composer_hub.redact.finders import find
from composer_hub.redact.judge import (
    is_argument,
    is_hex,
    is_private,
    is_secret,
    is_uuid,
    looks_like_password,
    looks_random,
    num_classes,
)
from composer_hub.redact.match import MAX_JUDGED, PLACEHOLDER
from composer_hub.redact.names import promise_in
from composer_hub.redact.settings import CODE, PASSWORD, is_setting_secret
from composer_hub.redact.siblings import sibling_values

MAX_BARE = 2_000
"""Characters of an output that may be nothing but a secret."""
MAX_DOCUMENT = 20_000
"""The same for a document of secrets."""
MAX_TOLD = 800
"""Characters of a command or a question that are read."""
MAX_LINES = 12
MAX_POLLS = 4
"""Outputs over which a value is followed."""
_SHORT_VARIABLE = re.compile(r"[A-Z_]+=\S{0,8}\Z|\^\[\[")
_CHOSEN = re.compile(r"(?=.*\d)(?=.*[^\W\d_]).*[+!#$%&*?=~;]")
"""A word with a digit and a sign."""
_IDENTIFIED = re.compile(r"(?i)\b\w{0,9}id(?:-\d)?[:=]\Z")
_COMMIT = 40
REACH = 400
"""Characters of each of them."""


class Join(NamedTuple):
    """A value in a text that another text explains."""

    text: str
    value: str
    label: str
    rule: str


# The engine skips to a letter that comes first in a pattern: `o(?<!\wo)p` rather than `\bop`.
_PRINTING = re.compile(
    "|".join(
        re.sub(r"^\\b(\w)", r"\1(?<!\\w\1)", written) for written in words("commands that print nothing but a secret")
    )
)
_DOCUMENTS = re.compile(r"(?i)sops|vault|credential|secret|pass|\bop\b|\bbw\b|chamber|gpg|keyring")
"""Commands that print a document of secrets, rather than one."""
_SESSIONS = frozenset(("session_id", "bash_id", "shell_id", "process_id", "session", "shellId", "sessionId"))
_ENTRY = re.compile(
    r"(?:- |export )?(?:[\"']?(?P<name>[\w.-]{1,60})[\"']?[ \t]*[:=][ \t]*|- )[\"']?(?P<v>[^\s\"']{6,200})[\"']?,?"
)
_PLAIN_NAME = re.compile(
    r"(?i)(?:user|username|login|host|hostname|ur[il]|port|path|id|e?mail|name|version|region|bucket|level|env|dn|domain"
    r"|db|database|type|kind|space|at|on|time|date|created|modified|updated|mac|fp|arn|org|project|address|addr|endpoint"
    r"|[a-z]?sid|server|realm|scopes?|tags?|image|algorithm|public|recipient|lease|duration|count|size|enabled|mode|file|folder)\Z"
)
"""Other keys in a document of secrets."""
_HASHING = re.compile(
    r"(?i)\bgit\b|sha\d*|\bmd5|\bhash|digest|checksum"
    r"|\bdocker\b|\bpodman\b|\betag\b|commit|rev-parse|uuid|\bgh (?:run|pr|issue|api)"
)
_FRAME = re.compile(
    r"(?i)^(?:(?:exit(?:ed)?[ _]?(?:code|status)?|return ?code|process exited|wall time|chunk id"
    r"|original token|total output|duration|output|stdout|stderr|command (?:finished|completed)"
    r"|\[(?:the command|current working|python|command)|\(bash) ?.*"
    r"|</?[\w-]+>|```\w*|[$>] .*)$"
)
_TAGS = re.compile(r"</?(?:output|stdout|result|returncode|exit_?code|response)>")
_LINE_NUMBER = re.compile(r"^\s*\d{1,6}(?:→|\t|: |\|)\s?")
_PROMPT = re.compile(
    r"(?i)(?:passw\w*|passphrase|token|secret|\bpin\b|\bkey\b|kennwort|contraseña)[^\n]{0,60}[:?>][\"'»)\]]{0,3}\s*\Z"
)
_ASKING = frozenset(":?>")
_TYPED = frozenset(("chars", "input", "text", "stdin", "data", "keys", "content", "value", "send"))
_PHRASE = re.compile(r"(?i)passphrase|mnemonic|seed|recovery|wallet")
_WORDS = re.compile(r"[a-z]{3,9}(?:[ ,\n]+[a-z]{3,9}){3,23}")
_MESSAGE = re.compile(r"\"(?:text|body|message)\": ?\"((?:[^\"\\]|\\.){8,600})\"")
_BARE_TOKEN = re.compile(r"[A-Za-z0-9+/]{20,}={0,2}", re.ASCII)
MAX_BARE_ANSWER = 100
"""Characters of an answer in which a number may be a one-time code."""
_ONE_TIME = re.compile(r"(?<![\w.#:-])(?:\d{3} \d{3}|\d{6})(?![\w.:-])")
_WORDS_OF_PHRASE = re.compile(r"[^\W\d_]+(?: [^\W\d_]+){3,9}")
_SPEAKING = frozenset(("i", "you", "we", "it", "don't", "no", "not", "please", "let", "ich", "nicht", "you're", "what", "the", "that", "this", "with", "from", "and", "commit", "update", "add", "run", "fix", "make", "use", "do", "go", "push", "merge", "try", "create", "skip", "continue", "then", "remove", "change", "check", "yes", "ok"))  # fmt: skip  # noqa: E501
_YES = re.compile(r"(?i)\A(?:(?:yes|yeah|yep|sure|ok|ja|oui|sí|si|here|it's|it is|take)[:,]? )+")
_FILLING = frozenset(words("words around an answer"))
_CHUNK = re.compile(r"(?s).*?\bOutput:\n")
_WORD = re.compile(r"(?:[A-Z]?[a-z]{3,}|[A-Z]{3,})(?![\w/+=-])")
_OPENING = re.compile(r"[\"{}\[\]]")
_PUBLIC_BLOCK = re.compile(
    r"-----BEGIN (?:[A-Z ]*PUBLIC KEY|CERTIFICATE|X509 CRL|PGP SIGNATURE|PGP MESSAGE|"
    r"AGE ENCRYPTED FILE)[^-]{0,20}-----.*?(?:-----END|\Z)",
    re.DOTALL,
)
_IDENTIFYING = re.compile(r"(?i)etag|hash|digest|sha\d*\Z|md5|checksum|id\Z|version|revision|commit|arn\Z|url\Z")
_EDGE = re.compile(r"[^\s\"'`,;(){}\[\]<>]{0,400}")


def joined_secrets(trace: Trace) -> Iterator[Join]:
    """Yield the values that one message names and another holds."""
    return (join for join in _joined(trace) if join.label != "SECRET" or is_private(join.value))


def _joined(trace: Trace) -> Iterator[Join]:
    calls: dict[str, tuple[ToolCall, str]] = {}
    before = ""
    polled: tuple[str, Any] | None = None
    mentioned = ""
    polls: list[str] = []
    for message in trace.messages:
        if message.role == "assistant":
            for call in message.tool_calls:
                calls[call.call_id] = call, message.content
                yield from _typed(before, call)
            yield from _said(message.content)
            before = message.content or before
            continue
        if message.role == "tool":
            called = calls.get(message.tool_call_id)
            if called:
                yield from _printed(*called, message)
            asked = (called[0].name, called[0].arguments) if called else None
            is_again = called is not None and polled is not None and (asked == polled or _is_poll(called[0]))
            polls = [*(polls[1 - MAX_POLLS :] if is_again else []), message.content]
            polled = asked
            yield from _cut(polls)
        elif message.role == "user":
            yield from _answered(before, message.content)
            yield from _bare_token(mentioned, message.content)
            mentioned = message.content
        if message.role != "tool":
            yield from _said(message.content)
        else:
            yield from _quoted(message.content)
        before = message.content


# ------------------------------------------------------------------------------------------------------ call and result


def _is_poll(call: ToolCall) -> bool:
    """Return whether a call asks a running program for more of its output."""
    return isinstance(call.arguments, Mapping) and not _SESSIONS.isdisjoint(call.arguments)


def _printed(call: ToolCall, said: str, message: Message) -> Iterator[Join]:
    """Yield the output of a command or the content of a file, if it is only a secret."""
    content = message.content
    if not content or len(content) > MAX_DOCUMENT:
        return
    told = " ".join(strings_in(call.arguments))[:MAX_TOLD]
    prints = _PRINTING.search(told)
    rule = f"output:{prints[0].strip()}" if prints else ""
    if prints and _DOCUMENTS.search(prints[0]):
        yield from (Join(content, value, "SECRET", rule) for value in _entries(content))
    if len(content) > MAX_BARE or content.count("\n") > 2 * MAX_LINES:
        return
    lines = list(_bare_lines(content))
    if not lines or len(lines) > MAX_LINES:
        return
    if prints:
        yield from (Join(content, value, "SECRET", rule) for value in _printed_alone(lines, told))
        return
    if "?" in told:
        yield from _answered(told, content)
    if len(lines) == 1 and _is_chosen(lines[0]) and promise_in(told)[0] == "password":
        yield Join(content, lines[0], "SECRET", "output:password")
    else:
        yield from (Join(content, value, "SECRET", f"output:{stem}") for value, stem in _named(lines, told, said))


def _printed_alone(lines: list[str], told: str) -> Iterator[str]:
    """Yield the secrets of a command that prints nothing else, such as `gh auth token`."""
    for line in lines:
        if _is_chosen(line):
            yield line
            continue
        for word in line.split():
            is_digest = _is_commit(word) and _HASHING.search(told)
            is_whole = len(lines) == 1 and word == line
            if not is_digest and (_is_printed(word) or (is_whole and _is_given(word))):
                yield word


def _named(lines: list[str], told: str, said: str) -> Iterator[tuple[str, str]]:
    """Yield the secrets (with stems) that a command, or the message before it, names: `echo $API_TOKEN`."""
    values = _values_alone(lines)
    if not values:
        return
    strength, stem = promise_in(told)
    if not strength:
        strength, stem = promise_in(said[-200:])
        values = [value for value in values if not is_hex(value)]
    is_password = strength == "password"
    if is_password:
        values = [value for value in values if not _is_commit(value)]
    are_digests = _HASHING.search(told) and all(is_hex(value) or is_uuid(value) for value in values)
    for value in values if strength and not are_digests else ():
        is_lone = is_password and len(values) == 1 and num_classes(value) >= 3
        if _is_printed(value) or (is_lone and _is_given(value)):
            yield value, stem


def _values_alone(lines: list[str]) -> list[str]:
    """Return the values of an output that has nothing else: one per line, or `0x… 0x…`."""
    values = [word for line in lines for word in (line.split() if line.count(" ") <= 2 and "0x" in line else [line])]
    is_text = len(values) > 4 or any(c.isspace() for value in values for c in value)
    return [] if is_text else [value.strip("\"'") for value in values]


def _is_commit(value: str) -> bool:
    """Return whether a value has the form of the digest of a commit."""
    return is_hex(value) and len(value) == _COMMIT


def _entries(content: str) -> Iterator[str]:
    """Yield the values in a document of secrets, whatever their names, except those of places and people."""
    for line in _bare_lines(content):
        entry = _ENTRY.fullmatch(line)
        if not entry or (entry["name"] and _PLAIN_NAME.search(entry["name"])):
            continue
        value = entry["v"]
        made = any(c.isdigit() for c in value) or value.count("-") > 1 or looks_random(value)
        if made and not is_hex(value) and not is_uuid(value) and is_setting_secret(value, PASSWORD, "line"):
            yield value


def _is_chosen(line: str) -> bool:
    """Return whether a printed line is a password, perhaps of words, and not about something else."""
    made = not is_hex(line) and (line.count("-") > 1 or any(c.isdigit() for c in line) or ", " in line)
    return (
        made
        and not line.endswith(".")
        and "\t" not in line
        and not _SHORT_VARIABLE.match(line)
        and is_setting_secret(line, PASSWORD, "quoted line")
    )


def _bare_lines(content: str) -> Iterator[str]:
    """Yield the lines of an output without what the tool writes around it."""
    if content.startswith("{"):
        try:
            content = "\n".join(_told_strings(orjson.loads(content)))
        except ValueError:
            return
    for line in _TAGS.sub("\n", _PUBLIC_BLOCK.sub("", content)).split("\n"):
        plain = _LINE_NUMBER.sub("", line).strip()
        if plain and not _FRAME.match(plain):
            yield plain


def _told_strings(value: Any) -> Iterator[str]:
    """Yield the strings of an answer that are not under the name of an id or a digest."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not _IDENTIFYING.search(key):
                yield from _told_strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _told_strings(item)
    elif not isinstance(value, str) or not is_uuid(value):
        yield from strings_in(value)


def _is_printed(value: str) -> bool:
    """Return whether a value is random rather than one of the words, names and paths that commands print."""
    if (
        len(value) > 512
        or value.isdigit()
        or "://" in value
        or "\t" in value
        or "sha256:" in value
        or '":' in value
        or _SHORT_VARIABLE.match(value)
    ):
        return False
    head = value[:MAX_JUDGED]
    return (
        value[-1:] != "," and is_secret(head, "token", "quoted") and (looks_random(head) or looks_like_password(head))
    )


def _is_given(value: str) -> bool:
    return (
        not value.startswith("/")
        and value[-1:] != ","
        and '":' not in value
        and "---" not in value
        and is_secret(value[:MAX_JUDGED], "password", "quoted")
    )


# -------------------------------------------------------------------------------------------------- question and answer


def _said(text: str) -> Iterator[Join]:
    """Yield the secrets that a message announces."""
    return (Join(text, text[start:end], label, rule) for start, end, label, rule in announced_secrets(text))


def _quoted(content: str) -> Iterator[Join]:
    """Yield the secrets that a chat message or a mail announces in a document."""
    if '"text"' in content or '"body"' in content or '"message"' in content:
        for message in _MESSAGE.finditer(content[:MAX_DOCUMENT]):
            for start, end, label, rule in announced_secrets(message[1]):
                yield Join(content, message[1][start:end], label, rule)
    elif len(content) <= MAX_BARE and "Subject: " in content and "From: " in content:
        yield from _said(content)


def _answered(question: str, answer: str) -> Iterator[Join]:
    """Yield a person's answer to a question for a secret."""
    if not answer or len(answer) > REACH:
        return
    asked = question.rstrip()[-REACH:].rpartition("\n")[2]
    bare = answer.strip().strip("`\"'")
    if asks_for_code(asked) and is_setting_secret(bare, CODE, "line"):
        yield Join(answer, bare, "SECRET", "code")
    if len(answer) <= MAX_BARE_ANSWER and asks_for_code(question[-REACH:]):
        yield from (Join(answer, code[0], "SECRET", "code") for code in _ONE_TIME.finditer(answer))
    strength, stem = promise_in(asked)
    if not strength:
        return
    is_password = strength == "password"
    if bare and not any(c.isspace() for c in bare):
        values = [bare] if _is_given(bare) or _is_printed(bare) else []
    else:
        values = [bare] if _PHRASE.search(question) and _WORDS.fullmatch(bare.rstrip(".")) else []
        values += (is_password and _password_alone(asked, answer, bare)) or _among_words(answer, is_password)
    yield from (Join(answer, value, "SECRET", f"answer:{stem}") for value in values)


def _password_alone(asked: str, answer: str, bare: str) -> list[str]:
    """Return the password that an answer is, except for words such as `yes, it is …`; or nothing."""
    phrase = _YES.sub("", bare)
    is_asked = asked[-1:] in _ASKING and promise_in(asked[-60:])[0] == "password"
    is_phrase = is_asked and _WORDS_OF_PHRASE.fullmatch(phrase) and _SPEAKING.isdisjoint(phrase.lower().split())
    if " " in phrase and (is_phrase or is_setting_secret(phrase, PASSWORD, "quoted line")):
        return [phrase]
    words = [word for word in _words_of(answer) if word.lower() not in _FILLING]
    is_alone = len(words) == 1 and is_setting_secret(words[0], PASSWORD, "line") and not words[0].islower()
    return words if is_alone else []


def _among_words(answer: str, is_password: bool) -> list[str]:
    """Return the words of an answer that are secrets, except those that follow the name of an id."""
    words = answer.split()
    return [
        value
        for before, word in zip(["", *words], words, strict=False)
        if (value := word.strip("`\"'.,;:!?()<>[]{}="))
        and not _IDENTIFIED.search(before)
        and not _OPENING.search(value)
        and not PLACEHOLDER.search(word)
        and _is_answer(value, is_password)
    ]


def _is_answer(value: str, is_password: bool) -> bool:
    """Return whether a word of an answer is a secret; a question for a password needs less proof."""
    if looks_like_password(value) and is_secret(value, "token", "quoted"):
        return True
    return is_password and bool(_CHOSEN.search(value)) and is_setting_secret(value, PASSWORD, "line")


def _bare_token(mentioned: str, message: str) -> Iterator[Join]:
    """Yield a message that is nothing but a token, or the password that the person spoke of in the message before."""
    bare = message.strip().strip("`\"'")
    if not 8 <= len(bare) <= 200 or any(c.isspace() for c in bare) or is_uuid(bare):
        return
    random = (
        bool(_BARE_TOKEN.fullmatch(bare)) and looks_random(bare) and not (is_hex(bare) and len(bare) in (_COMMIT, 64))
    )
    if random or (len(mentioned) <= MAX_TOLD and promise_in(mentioned)[0] and looks_like_password(bare)):
        yield Join(message, bare, "SECRET", "answer:bare")


def _words_of(text: str) -> list[str]:
    return [plain for word in text.split() if (plain := word.strip("`\"'.,;:!?()<>[]{}"))]


def _typed(before: str, call: ToolCall) -> Iterator[Join]:
    """Yield values that are typed into a form's field or at a prompt."""
    if not isinstance(call.arguments, Mapping):
        return
    for value, label, rule in sibling_values(call.arguments):
        yield from (Join(text, value, label, rule) for text in strings_in(call.arguments) if value in text)
    prompt = _PROMPT.search(before[-REACH:]) if before[-REACH:].rstrip()[-1:] in _ASKING else None
    for key, typed in call.arguments.items() if prompt else ():
        if key in _TYPED and isinstance(typed, str):
            value = typed.strip().removesuffix("\\n")
            if 4 <= len(value) <= 200 and " " not in value and is_argument(value):
                yield Join(typed, value, "SECRET", "typed")


# --------------------------------------------------------------------------------------------------------------- chunks


def _cut(outputs: list[str]) -> Iterator[Join]:
    """Yield the parts of a value that began in an earlier output of the same program and ends in the last one."""
    if len(outputs) < 2 or not _EDGE.fullmatch(outputs[-2][-4:] or " "):
        return
    bodies = [_body(output) for output in outputs]
    if not _is_random_edge(bodies[-2], bodies[-1]):
        return
    pieces = [*(body[-REACH:] for body in bodies[:-1]), bodies[-1][:REACH]]
    starts = [0]
    for piece in pieces:
        starts.append(starts[-1] + len(piece))
    for span in find("".join(pieces)):
        if span.label == "SECRET" and span.start < starts[-2] < span.end and not _WORD.match(pieces[-1]):
            for output, piece, start in zip(outputs, pieces, starts, strict=False):
                part = piece[max(0, span.start - start) : max(0, span.end - start)]
                if part and not _WORD.fullmatch(part):
                    yield Join(output, part, "SECRET", "cut_in_two")


def _body(output: str) -> str:
    head = output[:REACH]
    frame = _CHUNK.match(head) if "Output:\n" in head else None
    return output[frame.end() :] if frame else output


def _is_random_edge(before: str, after: str) -> bool:
    head, tail = _EDGE.match(before[-REACH:][::-1]), _EDGE.match(after[:REACH])
    assert head  # the pattern also fits nothing
    assert tail
    joined = (head[0][::-1] + tail[0])[-64:]
    return bool(head[0] and tail[0]) and (looks_random(joined) or looks_like_password(joined))
