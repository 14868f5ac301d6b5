"""Would a person call this value a secret?

In: a value, and for some questions how it was introduced. Out: yes or no. The first half measures how random a value
looks; the second half judges values by the place they were found in: beside a name, in a sentence or a call, after an
unknown prefix, in a URL, a header or a command.
"""

from __future__ import annotations

import base64
import functools
import itertools
import re
import string

from composer_hub.redact.data import lines, words
from composer_hub.redact.kinds import KINDS
from composer_hub.redact.match import MAX_JUDGED, PLACEHOLDER

# ----------------------------------------------------------------------------------------------------------- randomness

_PAIRS = {
    first + second: int(digit)
    for first, row in zip(string.ascii_lowercase, lines("letter_pairs.txt"), strict=True)
    for second, digit in zip(string.ascii_lowercase, row, strict=True)
}
MIN_SURPRISE = 3.6
"""Bits per letter pair from which letters no longer read as words: most random strings are above, few identifiers."""

_DUMMY = re.compile(
    r"(?i:example|placeholder|dummy|redacted|masked|changeme|change[_-]me|replace[_-]?(?:me|with|this)|insert[_-])"
    r"|(?i:(?<![a-z])(?:your|my|sample|fake|not[_-]?a|todo|some|the|test|dev|local|default|super)[_-]?"
    r"(?:real|secret|token|pass|key|api|auth|client|access|fake|todo)|(?<![a-z])(?:fake|todo|foobar|your)(?![a-z]))"
    r"|\.\.\.|\u2026|\*\*\*|xxxxx|XXXXX|xxxx\b|XXXX\b|<[a-z]|\$\{|\{\{|%\(|%s(?![A-Za-z0-9])|\$\((?=[\w./-]+[ )])|#\{"
    r"|0123456789|123456789|(?<!\d)12345(?!\d)|(?i:eintragen|einsetzen|einfügen|ersetzen|rellenar|cambiar|remplac|inserire|sostitu|invullen|wpisz|zmień|put[ _-]your)|abc\W?123(?:def|(?![A-Za-z0-9]))|A-Za-z|\[a-z0|[\ue000-\uf8ff]|\Ahunter2\Z|\A(?i:(?:new|old|current)?passwor[dt])\w{0,4}\Z|\.sig(?:nature)?\Z|\A2-?(?:FA|[Ff]actor)|_2fa\Z|\w\.\*\w|[_-]123\Z|abcdefgh|deadbeef|qwertyui|aaaaaa|0000000"  # noqa: E501
)
_EXAMPLE_KEYS = words("example keys")
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_WORDS = re.compile(r"[A-Za-z]*\d{0,4}(?:[ _\-./:,+|@#][A-Za-z]*\d{0,4})*[.!?:;,]*")


def is_example_key(value: str) -> bool:
    """Return whether the value holds a key that a vendor prints in its documentation."""
    return any(example in value for example in _EXAMPLE_KEYS)


@functools.lru_cache(maxsize=8192)
def is_dummy(value: str) -> bool:
    """Return whether documentation would write this value in place of a secret."""
    few = len(set(value)) < min(8 if len(value) >= 24 else 6, (len(value) + 1) // 2)
    return few or bool(_DUMMY.search(value)) or is_example_key(value)


def is_hex(value: str) -> bool:
    """Return whether all characters are hexadecimal digits, with letters of one case."""
    return bool(_HEX.fullmatch(value))


def is_uuid(value: str) -> bool:
    """Return whether the whole value is a UUID with its four dashes, in any case."""
    return bool(_UUID.fullmatch(value))


def surprise(text: str) -> float:
    """Return the mean bits per pair of neighboring letters."""
    lowered = text.lower()
    bits = [_PAIRS[pair] for i in range(len(lowered) - 1) if (pair := lowered[i : i + 2]) in _PAIRS]
    return sum(bits) / len(bits) if bits else 0.0


def switches(text: str) -> float:
    """Return the share of neighbors that differ in kind (lower case, upper case, digit), ignoring separators."""
    kinds = [1 if c.islower() else 2 if c.isupper() else 3 for c in text if c.isalnum()]
    if len(kinds) < 2:
        return 0.0
    return sum(a != b for a, b in itertools.pairwise(kinds)) / (len(kinds) - 1)


def num_classes(text: str) -> int:
    """Count which of lower case, upper case, digit and other characters occur."""
    return (
        any(c.islower() for c in text)
        + any(c.isupper() for c in text)
        + any(c.isdigit() for c in text)
        + any(not c.isalnum() or (c.isalpha() and c.lower() == c.upper()) for c in text)
    )


def is_worded(value: str, min_letters: int = 4) -> bool:
    """Return whether words of `min_letters` or more make up half of the letters, as in `TokenType2`."""
    runs = [run for run in _RUNS.findall(value) if len(run) >= min_letters and surprise(run) < 3.8]
    return sum(map(len, runs)) >= 0.5 * sum(c.isalpha() for c in value)


def reads_as_words(value: str) -> bool:
    """Return whether every part of the value is a word, perhaps followed by a small number."""
    return bool(_WORDS.fullmatch(value)) and surprise(value) < 3.3 and switches(value) < 0.3


@functools.lru_cache(maxsize=8192)
def looks_random(value: str) -> bool:
    """Return whether the value has 12 characters or more that a machine made rather than a person."""
    if len(value) < 12 or is_dummy(value):
        return False
    value = value[:256]
    if is_hex(value):
        return len(set(value)) >= 8 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return surprise(value) >= MIN_SURPRISE or (switches(value) >= 0.38 and any(c.isdigit() for c in value))


def has_random_part(value: str) -> bool:
    """Return whether the value, or the part after its last separator, looks random."""
    return looks_random(value) or looks_random(re.split(r"[_-]", value)[-1])


# -------------------------------------------------------------------------------------------------------- beside a name

IDENTIFIER = re.compile(r"[A-Za-z_$@&*!][\w$]*(?:(?:\.|::|->|\?\.|!\.|\[)[\w$\]\"']*)*[\])}(;,:?!.]*")
EXPRESSION = re.compile(
    r"^\d?[<>]|^[$({\[%@!~*&|=.,;:)\]}+#/\\-]|[({]\w*[)}]|\(\)|\(|=>|==|\$\{|://|^(?:None|null|nil|true|false"
    r"|undefined|string|str|int|bool|any|void)\b|\[[A-Z]+_\w+\]"
)
_ALNUM = frozenset(string.ascii_letters + string.digits)
_PATTERN = re.compile(r"\s|A-Z|a-z|0-9|\\[wdsb]|\(\?|\.\*|[A-Za-z]{10,}|://|\{\{|\$\{|\{[a-z_]+[.}(\[]")
"""Found in long texts of mixed signs that are expressions rather than salts."""
_YEARED = re.compile(r"(?=[^\s]*[A-Z])(?:[A-Z]?[a-z]+){1,4}\d{3,4}[!?.]?")
"""Words followed by a year or a number, a common way to make a password."""
_KEY_BYTES = re.compile(r"[A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{86}==")
_AWS_SECRET = re.compile(r"[A-Za-z0-9/+]{40}")
_LONG_WORD = re.compile(r"[a-z]{6}|://|\(\?|\\[wdsb]|\{\{")
_SIGNS = re.compile(r"[!$%^&*?~]")
_LOOKED_UP = re.compile(
    r"(?i)(?:process\.env|import\.meta\.env|deno\.env|os\.(?:environ|getenv)|std::env|env::var|system\.getenv|secrets\."
    r"|op://|vault:|ssm:|sops:|ref\+\w+:|enc\[|\{cipher\}|projects/[\w-]+/secrets|!ref|!sub|!getatt|fn::"
    r"|var\.[a-z]|local\.[a-z]|module\.[a-z]|data\.[a-z]|random_password\.|arn:aws)"
)
"""Places that a program or a template reads its secret from."""
_CALL = re.compile(r"\A(?:new )?[A-Za-z_]{2}[\w.]*\(|\w\(\)")
TRIVIAL = frozenset(words("trivial values"))


MIN_SALT = 48
"""Characters of a value that no one writes as a dummy."""
_RUN = re.compile(r"[A-Za-z0-9+=]{12,}")
_IDS = frozenset(words("prefixes of ids"))
_NUMBER = re.compile(r"\d[\d -]*[#*]?")
MIN_SENTENCE = 10
"""Characters of languages without spaces that no one types as a password."""
_GIVEN_ID = re.compile(r"([a-z]{2,9})_[A-Za-z0-9]{16,60}")
_ASIAN = re.compile("[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")


@functools.lru_cache(maxsize=8192)
def what_is(value: str) -> str:
    """Return the kind of a value that its notation shows not to be a secret (path, version, code), or ""."""
    for kind in KINDS:
        if kind.pattern.fullmatch(value) and not (kind.is_worded and any(map(looks_random, _RUN.findall(value)))):
            return kind.name
    if (given := _GIVEN_ID.fullmatch(value)) and given[1] in _IDS:
        return "id"
    # A particle or the rest of a sentence follows a word without a space: `v0.11.0에서`.
    if len(_ASIAN.findall(value)) >= MIN_SENTENCE:
        return "sentence"
    asian = _ASIAN.search(value)
    head = value[: asian.start()] if asian else ""
    return "sentence" if head and (head.isalpha() or what_is(head)) else ""


def is_ordinary(value: str) -> bool:
    """Return whether a value cannot be a secret under any name: a dummy, a trivial word, or what its notation shows."""
    return is_dummy(value) or _is_plain(value)


def is_private(value: str) -> bool:
    """Decide on a value that its surroundings make a secret; no finder overrules this.

    Numbers are an exception, because only the surroundings distinguish a PIN from a port. A long value may by
    chance hold text that marks a dummy.
    """
    if _NUMBER.fullmatch(value):
        return True
    return not _is_plain(value) and (len(value) >= MIN_SALT or not is_dummy(value))


def _is_plain(value: str) -> bool:
    return (
        value.lower() in TRIVIAL or bool(PLACEHOLDER.search(value)) or bool(what_is(value[:MAX_JUDGED].strip("'\"`")))
    )


@functools.lru_cache(maxsize=8192)
def is_secret(value: str, strength: str, written: str) -> bool:
    """Judge a value beside a name.

    `strength` is the promise of the name: password, token or key. `written` is quoted, env (an environment line or a
    flag), bare (code, YAML) or prose.
    """
    if _is_salt(value, written):
        return len(value) >= MIN_SALT or not _cannot_be_secret(value)
    if _cannot_be_secret(value):
        return False
    if " " in value and strength != "password":
        return False
    if strength == "password" and written in ("quoted", "env"):
        return _is_password(value)
    if _is_key_material(value, written):
        return True
    if EXPRESSION.search(value.rstrip("=")):
        return False
    if written == "prose":
        return _is_secret_in_prose(value, strength)
    if written == "bare":
        return _is_secret_in_code(value, strength)
    if strength == "key":
        return _is_random_key(value) and (written == "env" or _alternates(value))
    return looks_random(value) or is_uuid(value) or (len(value) >= 10 and _is_mixed(value, 2))


def is_test_name(value: str) -> bool:
    """Return whether a value can be the name of a test, made of words rather than random characters."""
    return not _SIGNS.search(value) and (is_worded(value, min_letters=3) or not is_all_random(value))


def _cannot_be_secret(value: str) -> bool:
    """Return whether a value is too short, a call (`get_token()`), `process.env.A`, or ordinary."""
    return len(value) < 6 or bool(_LOOKED_UP.match(value) or _CALL.search(value)) or is_ordinary(value)


def _is_salt(value: str, written: str) -> bool:
    """Return whether a value with all kinds of signs was generated, and is not an expression."""
    signs = len(set(value) - _ALNUM)
    if written != "quoted" or len(value) < 32 or value.count(" ") > 3 or signs < 5:
        return False
    return (
        num_classes(value) >= (3 if signs >= 8 and " " not in value else 4)
        and switches(value) >= 0.3
        and not _LONG_WORD.search(value)
    )


def _is_key_material(value: str, written: str) -> bool:
    if _AWS_SECRET.fullmatch(value) and not is_hex(value) and looks_random(value) and switches(value) >= 0.4:
        return True
    if written == "quoted" and len(value) >= 48 and len(set(value) - _ALNUM) >= 6 and not _PATTERN.search(value):
        return True
    return bool(_KEY_BYTES.fullmatch(value)) and looks_random(value)


def _is_secret_in_prose(value: str, strength: str) -> bool:
    if is_hex(value):
        return strength == "token" and len(value) == 32 and looks_random(value)
    return _is_mixed(value, 3) and (strength == "token" or not is_uuid(value))


def _is_secret_in_code(value: str, strength: str) -> bool:
    """Judge a value without quotes in code or YAML, unlike the name `settings.api_token`."""
    is_identifier = IDENTIFIER.fullmatch(value)
    letters = value.replace(".", "").replace("_", "")
    if is_identifier and letters.isalpha() and (len(value) < 24 or is_worded(value)):
        return False
    if strength == "password":
        made = num_classes(value) >= 2 and not is_identifier and not reads_as_words(value)
        return made or looks_random(value) or bool(_YEARED.fullmatch(value))
    return _is_random_key(value) and _alternates(value) if strength == "key" else looks_random(value)


def _is_random_key(value: str) -> bool:
    """Return whether a value is random and long enough for a key, and not a UUID."""
    return len(value) >= 16 and looks_random(value) and not is_uuid(value)


def _alternates(value: str) -> bool:
    """Return whether letters and digits alternate, and the value is not a digest."""
    return not is_hex(value) and switches(value) >= 0.3


def _is_mixed(value: str, min_classes: int) -> bool:
    """Return whether a value has digits among other characters, and not only words as `token-type-2`."""
    return num_classes(value) >= min_classes and any(c.isdigit() for c in value) and not reads_as_words(value)


_REFERENCE = re.compile(
    r"\w{2,10}://(?![^/]*@)|\w+\([^()]*\)\Z|[#.]\w+(?:[ >.#-]\w+)*\Z|(?:input|form|div|button)\b[\[#.]|//\w+\["
    r"|[a-z][\w.-]*(?:/[\w.-]+)+\Z|\w+(?:[|:,]\w+){2,}\Z|[a-z]+(?:[.:][a-z_]+)+\d?\Z|\w+\[[\w\"'=-]+\]\Z"
)
"""Written beside `password` in code: references, types, selectors, validators, messages."""
_TEMPLATE = re.compile(r"(?:\$\{|\{\{|\$\(|<|%[({s]|\$[A-Za-z_]+$|os\.|process\.|env[.(\[:]|https?://|/\w+/)")
_RULE_WORDS = frozenset(words("words about passwords"))
_SENTENCE = re.compile(r"[A-Za-z]+(?:[ _\-./:][A-Za-z]+)+[.:!?]?")


def _is_password(value: str) -> bool:
    if value.startswith("//") or (_REFERENCE.match(value) and not looks_random(value)) or _TEMPLATE.match(value):
        return False
    if " " in value:
        return _is_passphrase(value)
    if value.isalpha():
        return len(value) >= 8 and (surprise(value) >= MIN_SURPRISE or switches(value) >= 0.4)
    if IDENTIFIER.fullmatch(value) and not any(c.isdigit() for c in value):
        return looks_random(value)
    return looks_random(value) if _SENTENCE.fullmatch(value) else num_classes(value) >= 2


def _is_passphrase(value: str) -> bool:
    """Return whether words are a password (`tame otter 91 violin`), not a message about one."""
    parts = value.split()
    if 2 <= len(parts) <= 7 and len(value) >= 12 and any(c.isdigit() for part in parts[1:] for c in part):
        plain_words = {word.lower() for word in re.findall(r"[^\W\d_]+", value)}
        return not _RULE_WORDS & plain_words and not re.search(r"[(){}<>=;:%$@\[\]\\]|\d\.\d", value)
    plain = all(part.isalpha() and part.islower() and len(part) > 3 for part in parts)
    named = (
        parts[0].islower() and all(part.isalpha() for part in parts) and not _RULE_WORDS & set(value.lower().split())
    )
    return (
        len(parts) >= 4
        and (plain or (named and len(parts) <= 8))
        and not {"your", "must", "with", "password"} & set(parts)
    )


# ---------------------------------------------------------------------------------------------- in a sentence or a call

_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
_MADE = re.compile(r"\d\W*[!@#$%^&*?]|[!@#$%^&*?+]\w|(?<=[a-z])(?:\d{3,4}|[-_.]\d{2,4})[!?.]{0,2}\Z")
"""The additions that turn a word into a password: a sign, or a year."""
_LOWER = re.compile(r"[a-z0-9]+(?:[-._][a-z0-9]+)+")
_NO_PASSWORD = re.compile(
    r"://|^[*/.~$<{(\[%@#&|=-]|\$\{|\{\{|\(|\)|^(?:[a-z_]{2,}|[A-Z_]{2,})=|\.(?:py|js|ts|go|rs|rb|java|md|json|ya?ml|toml|txt|sh|html|css|lock|log|env)\b"
    r"|^v?\d+(?:\.\d+)+|^[\d:.,TZ/+-]+$|::|\[\]|[A-Za-z]\.[a-z_]{3,}\.|^0x[0-9a-fA-F]{1,40}$|^[A-Z]{2,10}-\d+$|\\|;$|^\w+\[|@[\w-]+\.\w{2,}$"
)


def looks_like_password(value: str) -> bool:
    """Return whether a value is a password, not a word, name, version or path in a sentence or call."""
    if _NO_PASSWORD.search(value) or is_ordinary(value):
        return False
    made = any(c.isdigit() or c in "!@#$%^&*?+" for c in value)
    if len(value) < 6 or num_classes(value) < 3 or not made:
        # A digest has forty characters or more.
        random = looks_random(value) and value.isalnum() and not value.isdigit()
        return random and not (is_hex(value) and len(value) > 32)
    if _is_joined(value):
        return False
    # Words are a password only if a sign or a year was added to them.
    return not is_worded(value) or bool(_MADE.search(value) and any(c.isupper() for c in value))


def _is_joined(value: str) -> bool:
    """Return whether signs join the parts of a name: `1.2-rc1`, `docs/api2`, `Node-20-LTS-x64`."""
    if _LOWER.fullmatch(value) and len(value) < 12 and not looks_random(value):
        return True
    if "/" in value and _PATH.fullmatch(value) and switches(value) < 0.35:
        return True
    return len(re.findall(r"[-_.]\w", value)) >= 3 and not re.search(r"[^\w.-]", value)


# ---------------------------------------------------------------------------------------------- after an unknown prefix

_CHOSEN_PREFIX = re.compile(
    r"(?:[a-z]+\d{0,2}|[A-Z][a-z]+\d{0,2}|[A-Z]+\d{0,2}|v\d|[a-z]\d[a-z])(?:[_-](?:[a-z]+\d{0,2}|[A-Z]+\d{0,2}|[A-Z]?[a-z0-9]+))*"
)
"""A prefix that a person chose. URL-safe base64 before a dash changes its case at random."""
_TELLS = re.compile(
    r"(?i)(?:\A|[_-])(?:live|test|prod|sandbox|sec|secret|s?key|pat|tok|token|priv|auth|api|cred|svc|bot|sk|rk|at|rt"
    r"|(?:api|auth|access|secret)(?:key|token|tok))(?=[_-]|\Z)"
)
_NODE_IDS = ("kwDO", "kgDO", "lADO", "lAHO", "kwHO", "lQDO")
"""How the ids of a code host's API begin."""
MIN_TAIL = 28
"""Random characters that make a token after an unknown prefix; ids usually have fewer."""


def is_prefixed_token(prefix: str, tail: str) -> bool:
    """Return whether a value is a vendor's token rather than an id, a file name or an identifier."""
    parts = prefix.replace("-", "_").lower().split("_")
    if not _CHOSEN_PREFIX.fullmatch(prefix) or parts[0] in _IDS or parts[-1] in _IDS or tail.startswith(_NODE_IDS):
        return False
    if is_worded(tail) or tail.isdigit() or tail.isalpha() or not looks_random(tail):
        return False
    if _TELLS.search(prefix):
        return True
    mixed = any(c.islower() for c in tail) and any(c.isupper() for c in tail)
    return len(tail) >= MIN_TAIL and (mixed or (len(tail) >= 32 and not is_hex(tail)))


def is_all_random(text: str) -> bool:
    """Return whether upper case, lower case and digits alternate about as often as by chance."""
    return num_classes(re.sub(r"[_.-]", "", text)) == 3 and switches(text) >= 0.45


# ---------------------------------------------------------------------------------------- in a URL, a header, a command


def is_argument(value: str) -> bool:
    """Return whether a command's argument is a secret rather than a variable, a path, a flag or a word."""
    if value.startswith(("$", "<", "-", "/", "{", "@", "%", "./", "~", "*")) or is_dummy(value):
        return False
    return not (value.isalpha() and value.islower() and len(value) < 12)


_PORT = re.compile(r"\d{2,5}/")


def is_url_password(value: str) -> bool:
    """Return whether a value in a URL or a connection string is a password rather than a variable."""
    if value.startswith(("$", "{", "%", "<", "*")) or is_dummy(value) or "://" in value or _PORT.match(value):
        return False
    return value.lower() not in ("pass", "pwd", "passwd")


def is_query_value(value: str) -> bool:
    """Return whether a value in the query of a URL is a secret; punctuation before it does not count."""
    return is_secret(value.lstrip("-_.~+/"), "key", "bare")


_WORDS_WITH_DASHES = re.compile(r"[A-Za-z]+(?:-[A-Za-z]+)*")


def is_header(value: str) -> bool:
    """Return whether the value of a header is credentials rather than an expression or a word."""
    if value.endswith("]") or "*" in value or (_WORDS_WITH_DASHES.fullmatch(value) and is_worded(value)):
        return False
    return not is_dummy(value) and not reads_as_words(value) and not EXPRESSION.search(value.rstrip("="))


def is_basic(value: str) -> bool:
    """Return whether the value decodes to `user:password`."""
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except ValueError:
        return False


def is_cookie(value: str) -> bool:
    """Return whether a part of a cookie's value is random, as a session id is."""
    return any(has_random_part(part) for part in re.split(r"[=;\s]", value))


def is_handed_over(value: str) -> bool:
    """Return whether a value that code passes on by name, as in `input_value=…`, is a secret."""
    return looks_random(value) or (_is_mixed(value, 3) and not is_dummy(value) and not EXPRESSION.search(value))
