"""Personal data in a text: mail and network addresses, phones, people's names, account and card numbers, home folders.

In: a text. Out: spans of values with their label and rule, and the user names that home folders give away. Addresses
of nobody (example.com, no-reply senders of services, private and documentation networks) stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Set

from composer_hub.ingest.redact_entropy import is_hex
from composer_hub.ingest.redact_named import Span, line_start

# ---------------------------------------------------------------------------------------------------------------- mail


_LOCAL_SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = re.compile(
    r"@(?:[^\W_](?:(?:[^\W_]|-){0,62}[^\W_])?\.){1,8}(?:[A-Za-z]{2,24}|xn--[a-z0-9-]{2,40})(?![A-Za-z0-9_-])"
)
_ENCODED_MAIL = re.compile(
    r"(?:(?<![\w.%+-])|(?<=%3D)|(?<=%3A)|(?<=%20)|(?<=%22)|(?<=%2F)|(?<=%3C)|(?<=%26))[A-Za-z0-9][\w.+-]{0,63}%40(?:[A-Za-z0-9][A-Za-z0-9-]{0,62}\.){1,8}[A-Za-z]{2,24}(?![\w-])"
)
_SPOKEN_MAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{1,63}(?:\s?[\[({]\s?at\s?[\])}]\s?|&#(?:64|x40);|&commat;|\\u0040)[A-Za-z0-9][\w-]{0,62}"
    r"(?:\s?[\[(]\s?dot\s?[\])]\s?[A-Za-z0-9-]{2,62}|\.[A-Za-z]{2,24}){1,4}"
)
_SAID_MAIL = re.compile(
    r"(?i)(?<![\w.+-])[a-z0-9][\w.+-]{1,40}(?: dot [a-z0-9][\w-]{0,40}){0,3} at [a-z0-9][\w-]{1,62}(?: dot [a-z0-9][\w-]{1,40}){1,3}(?![\w-])"
)
_NOBODY = re.compile(
    r"(?i)(?:^|[.@])(?:example\.(?:com|org|net|edu)|example|test|invalid|localhost|local)$|^(?:git|hg"
    r"|svn|npm|user|username|you|your\.?(?:name|email)|name|email|foo|bar|me|someone|ec2-user|ubuntu"
    r"|root)@"
    r"|^(?:no-?reply|do-?not-?reply|mailer-daemon|postmaster|bounce|notifications?|support|security"
    r"|info|hello|abuse|webmaster|actions?|bot|dependabot|renovate|opensource|conduct)@|\[bot\]@"
    r"|^\d+\+[\w-]*bot\b"
)
_FILE_ENDINGS = frozenset(
    [
        "png",
        "jpg",
        "jpeg",
        "gif",
        "svg",
        "webp",
        "js",
        "ts",
        "jsx",
        "tsx",
        "mjs",
        "cjs",
        "css",
        "scss",
        "py",
        "go",
        "rs",
        "java",
        "kt",
        "rb",
        "php",
        "html",
        "json",
        "md",
        "txt",
        "yml",
        "yaml",
        "lock",
        "zip",
        "gz",
        *("service", "socket", "timer", "target", "mount", "slice", "scope", "arpa", "onion"),
        *("transpose", "weight", "weights", "shape", "reshape", "conj"),
    ]
)


def mail_spans(text: str) -> Iterator[Span]:
    """Yield e-mail addresses of people."""
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at) if at and text[at - 1] in _LOCAL_SAFE else None
        if domain:
            head = text[max(0, at - 64) : at]
            start = _after_escape(text, at - (len(head) - len(head.rstrip(_LOCAL_SAFE))))
            while start < at and text[start] in ".%+-":
                start += 1
            address = text[start : domain.end()]
            if start < at and _is_mail(address, text, start):
                yield start, domain.end(), "EMAIL", "email"
        at = text.find("@", domain.end() if domain else at + 1)
    for found in _SPOKEN_MAIL.finditer(text) if _may_speak(text) else ():
        yield *found.span(), "EMAIL", "email_spoken"
    if (" dot " in text and " at " in text) or (" DOT " in text and " AT " in text):
        yield from ((*found.span(), "EMAIL", "email_spoken") for found in _SAID_MAIL.finditer(text))
    if "%40" in text:
        for found in _ENCODED_MAIL.finditer(text):
            if _is_mail(found[0].replace("%40", "@"), text, found.start()):
                yield *found.span(), "EMAIL", "email_encoded"


def _may_speak(text: str) -> bool:
    return "[at]" in text or "(at)" in text or "[ at ]" in text or "( at )" in text or "&#" in text or "u0040" in text


def _is_mail(address: str, text: str, start: int) -> bool:
    if _NOBODY.search(address) or address.rpartition(".")[2].lower() in _FILE_ENDINGS:
        return False
    if text[start + len(address) : start + len(address) + 1] == "(":  # a product of matrices
        return False
    # `user:pass@host` and `git@host:path` are addresses of machines.
    return text[max(0, start - 3) : start] != "://" and not (
        start and text[start - 1] == ":" and "://" in text[max(0, start - 40) : start]
    )


def _after_escape(text: str, start: int) -> int:
    r"""Step over a letter that belongs to an escape: in `\nalice@…` the address begins behind `\n`."""
    before = text[max(0, start - 32) : start]
    backslashes = len(before) - len(before.rstrip("\\"))
    if backslashes % 2 and start < len(text):
        return start + (5 if text[start] == "u" else 1) if text[start] in "nrtbfu" else start
    return start


# ------------------------------------------------------------------------------------------------------------- network

# A pattern that begins with one character, not with a repeat, lets the engine skip to where it may begin.
_IPV4 = re.compile(r"\d\d{0,2}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_VERSION_BEFORE = re.compile(
    r"(?i)(?:version|release|ver|build|\bv|rev|tag|==|>=|<=|~=|\^|~|(?<!/)/|[a-z]-|\"version\")[\s:=\"']{0,4}$"
)
_VERSION_LINE = re.compile(r"(?i)version|(?:chrome|safari|firefox|edg|opera|electron|driver|assembly)[/ ]|\boid\b")
_PUBLIC_SERVERS = frozenset(
    [
        "8.8.8.8",
        "8.8.4.4",
        "1.1.1.1",
        "1.0.0.1",
        "9.9.9.9",
        "149.112.112.112",
        "208.67.222.222",
        "208.67.220.220",
        "169.254.169.254",
        "1.2.3.4",
        "4.3.2.1",
        "5.6.7.8",
    ]
)
_HEX_COLON = frozenset("0123456789abcdefABCDEF:")
_ADDRESS_WORD = re.compile(
    r"(?i)(?:addr|address|ip|ipv4|host|server|client|peer|remote|source|src|dst|from|to|inet|ffff|nameserver|gateway|tcp|udp"
    r"|endpoint|listen)\d?:\Z"
)
_SHORT_IPV6 = re.compile(r"2[0-9a-fA-F]{3}::[0-9a-fA-F]")
_HOST_IP = re.compile(r"-(?P<a>\d{1,3})-(?P<b>\d{1,3})-(?P<c>\d{1,3})-(?P<d>\d{1,3})(?=[.\s])")
_MAC = re.compile(r":[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){4}(?![\w:-])|-[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){4}(?![\w:-])")
_MAC_DOTTED = re.compile(r"\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])")


def network_spans(text: str) -> Iterator[Span]:
    """Yield public IP addresses and hardware addresses."""
    if text.count(".") >= 2:
        for found in _IPV4.finditer(text):
            start, end = found.span()
            inside = _inside(text, start) and not _ADDRESS_WORD.search(text, max(0, start - 16), start)
            if not inside and _is_public(found[0]) and not _is_version(text, start, end):
                yield start, end, "IP", "ipv4"
        for found in _MAC_DOTTED.finditer(text):
            start = found.start() - 4
            parts = text[max(0, start) : found.end()].split(".")
            if not _inside(text, start) and len(parts[0]) == 4 and all(is_hex(part) for part in parts):
                if any(c.isalpha() for c in found[0]) and any(c.isdigit() for c in found[0]):
                    yield start, found.end(), "MAC", "mac_dotted"
    if text.count("-") >= 4 and "." in text:
        for found in _HOST_IP.finditer(text):
            if text[max(0, found.start() - 4) : found.start()][-1:].isalnum() and _is_public(".".join(found.groups())):
                yield found.start() + 1, found.end(), "IP", "ipv4_in_host_name"
    if text.count(":") >= 2 or text.count("-") >= 5:
        yield from _ipv6_spans(text)
        for found in _MAC.finditer(text):
            start = found.start() - 2
            if is_hex(text[max(0, start) : start + 2].lower()) and any(c.isalpha() for c in text[start : found.end()]) and not _inside(text, start) and len(set(found[0])) > 3:
                yield start, found.end(), "MAC", "mac"


def _inside(text: str, start: int) -> bool:
    """Tell whether what begins here goes on from a word or a longer number."""
    return start < 0 or (
        bool(start and (text[start - 1].isalnum() or text[start - 1] in "_.:")) and not _escaped(text, start)
    )


def _escaped(text: str, start: int) -> bool:
    return text[max(0, start - 2) : start] in ("\\n", "\\t", "\\r")


def _is_public(address: str) -> bool:
    try:
        return (
            ipaddress.ip_address(address).is_global
            and address not in _PUBLIC_SERVERS
            and not address.startswith(("224.", "239.", "0."))
        )
    except ValueError:
        return False


def _is_version(text: str, start: int, end: int) -> bool:
    if _VERSION_BEFORE.search(text[max(0, start - 12) : start]) or re.match(r"[-+][A-Za-z]", text[end : end + 2]):
        return True
    octets = [int(octet) for octet in text[start:end].split(".")]
    return max(octets) <= 25 or octets[2:] == [0, 0] or bool(_VERSION_LINE.search(line_start(text, start)[-24:]))


def _ipv6_spans(text: str) -> Iterator[Span]:
    at = text.find(":")
    last = -1
    while at >= 0:
        if at > last and (text[at + 1 : at + 2] == ":" or text[at + 1 : at + 2].isalnum()):
            start, end = _hex_run(text, at)
            last = end
            candidate = text[start:end].rstrip(":")
            if text[end : end + 1] != "." and 6 <= len(candidate) <= 39 and (candidate.count(":") >= 3 or _SHORT_IPV6.match(candidate)) and _is_ipv6(candidate, text, start):
                yield start, start + len(candidate), "IP", "ipv6"
        at = text.find(":", max(at + 1, last))


def _hex_run(text: str, at: int) -> tuple[int, int]:
    start, end = at, at + 1
    while start > 0 and at - start < 40 and text[start - 1] in _HEX_COLON:
        start -= 1
    while end < len(text) and end - at < 48 and text[end] in _HEX_COLON:
        end += 1
    return start, end


def _is_ipv6(candidate: str, text: str, start: int) -> bool:
    if start and (text[start - 1].isalnum() or text[start - 1] in "_.-"):
        return False
    if "::" not in candidate and all(len(group) <= 2 for group in candidate.split(":")):
        return False  # a fingerprint of eight bytes
    try:
        address = ipaddress.IPv6Address(candidate)
    except ValueError:
        return False
    return address.is_global and not address.is_multicast


# -------------------------------------------------------------------------------------------------------------- numbers

_NUMBER = re.compile(r"\d[\d().\-   ]{5,28}\d")
_INTERNATIONAL = re.compile(r"\+[1-9]\d{0,2}[ .\- ]?(?:\(0?\d{1,4}\)[ .\- ]?)?\d[\d .\-]{5,14}\d")
_NATIONAL = re.compile(
    r"(?:\+?1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[-.])[2-9]\d{2}[-. ]\d{4}"
    r"|\(0\d{1,4}\) ?\d{3,4}[ -]?\d{3,4}|0\d{1,4}[ -]\d{3,4}[ -]\d{3,5}|0[1-9](?:[ .]\d{2}){4}|01[567]\d[ -]\d{7,8}"
)
_CARD = re.compile(
    r"(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6(?:011|5\d{2}|2\d{2})|3(?:528|5[3-8]\d))([ -]?)\d{4}\1\d{4}\1\d{4}"
    r"|3[47]\d{2}([ -]?)\d{6}\2\d{5}|3(?:0[0-5]|[68]\d)\d([ -]?)\d{6}\3\d{4}"
)
_FICTION = re.compile(r"555[-. ]01\d\d\Z")
_AMONG_NUMBERS = re.compile(
    r"(?<![\w./-])(?:(?P<CARD>(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6(?:011|5\d{2}))(?P<gap>[ -]?)\d{4}(?P=gap)\d{4}(?P=gap)\d{4}"
    r"|3[47]\d{2}(?P<amex>[ -]?)\d{6}(?P=amex)\d{5})|(?P<SSN>(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4})"
    r"|(?P<PHONE>(?:\([2-9]\d{2}\) ?|[2-9]\d{2}-)[2-9]\d{2}-\d{4}))(?!\w|[.-]\d)"
)
_TEST_CARDS = frozenset(
    "4242424242424242 4111111111111111 5555555555554444 5105105105105100 378282246310005 371449635398431 6011111111111117 "
    "6011000990139424 3530111333300000 4012888888881881 4000056655665556 4000000000000002 2223003122003222 5200828282828210 "
    "4000002500003155 4000000000003220 5454545454545454".split()
)
_EXAMPLE_NUMBERS = frozenset(("078-05-1120", "219-09-9999", "123-45-6789", "987-65-4321", "111-22-3333"))
_SSN = re.compile(r"(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}")
_IBAN = re.compile(r"[A-Z][A-Z]\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])")
_PHONE_WORD = re.compile(
    r"(?i)(?:phone|mobile|m[oó]vil|mobil\w{0,5}|cell|cellulare|celular|handy|\btel\b|t[eé]l[eé]?fon\w{0,2}|t[eé]l\.|telephone"
    r"|fax|call|whatsapp|sms|dial|contact|msisdn|電話|电话|手机|전화|телефон|\bph\b)[\w \"'.]{0,16}[:=]?[ \"'(]{0,4}\Z"
)
_SLASHED_PHONE = re.compile(r"/\d{5,9}(?![\d/.-])")
_DIALLING_CODE = re.compile(r"(?<![\d/.-])0\d{2,4}\Z")
_NAMED_SSN = re.compile(r"(?i)\b(?:ssn|social security)\b[^\d\n]{0,16}(?P<v>(?!000|666|9)\d{3}[ -]?\d{2}[ -]?\d{4})(?!\d)")


def number_spans(text: str) -> Iterator[Span]:
    """Yield phone, card, social security and bank account numbers."""
    for found in _NUMBER.finditer(text):
        start, end = found.span()
        while start and text[start - 1] in "+(":
            start -= 1
        yield from _number(text, start, end)
    if "/" in text:
        for found in _SLASHED_PHONE.finditer(text):
            code = _DIALLING_CODE.search(text, max(0, found.start() - 6), found.start())
            if code and _PHONE_WORD.search(text, max(0, code.start() - 32), code.start()):
                yield code.start(), found.end(), "PHONE", "phone_named"
    if "ssn" in text or "SSN" in text or "ecurity" in text:
        for found in _NAMED_SSN.finditer(text):
            if found["v"] not in _EXAMPLE_NUMBERS:
                yield *found.span("v"), "SSN", "ssn"
    for found in _IBAN.finditer(text):
        if not _inside(text, found.start()) and _is_iban(found[0].replace(" ", "")):
            yield *found.span(), "IBAN", "iban"


def _number(text: str, start: int, end: int) -> Iterator[Span]:
    after = text[end : end + 1]
    if _continues(text, start):
        return
    number = text[start:end]
    bare = _json_number(text, start)
    if after.isalnum() or after in ("_", "%"):
        yield from _number_within(text, start, end, bare)
    elif number in _EXAMPLE_NUMBERS or _FICTION.search(number) or _digits(number) in _TEST_CARDS:
        return
    elif not bare and _CARD.fullmatch(number) and _luhn(number):
        yield start, end, "CARD", "card"
    elif _SSN.fullmatch(number):
        yield start, end, "SSN", "ssn"
    elif _INTERNATIONAL.fullmatch(number) and 8 <= len(_digits(number)) <= 15:
        yield start, end, "PHONE", "phone_international"
    elif _NATIONAL.fullmatch(number):
        yield start, end, "PHONE", "phone_national"
    elif (
        not bare
        and 9 <= len(_digits(number)) <= 15
        and number[0] != "."
        and _PHONE_WORD.search(text, max(0, start - 32), start)
    ):
        yield start, end, "PHONE", "phone_named"
    else:
        yield from _number_within(text, start, end, bare)


def _number_within(text: str, start: int, end: int, bare: bool) -> Iterator[Span]:
    """Yield the numbers of a run of several: a card beside its date, a phone beside its hours."""
    if end - start <= 11:
        return
    for found in _AMONG_NUMBERS.finditer(text, start, end):
        label = found.lastgroup or ""
        if found[0] in _EXAMPLE_NUMBERS or _FICTION.search(found[0]) or _digits(found[0]) in _TEST_CARDS:
            continue
        if label != "CARD" or (not bare and _luhn(found[0])):
            yield *found.span(), label, "among_numbers"


def _digits(number: str) -> str:
    return "".join(c for c in number if c.isdigit())


def _continues(text: str, start: int) -> bool:
    """Tell whether the digits go on from something: a word, an amount, a path, a hash."""
    before = text[start - 1 : start]
    return bool(before) and (before.isalnum() or before in "_#$/-.") and not _escaped(text, start)


def _json_number(text: str, start: int) -> bool:
    """Tell whether the digits are a JSON number: a placeholder without quotes would break the text."""
    return text[max(0, start - 8) : start].rstrip().endswith('":')


def _luhn(number: str) -> bool:
    digits = [int(c) for c in number if c.isdigit()][::-1]
    doubled = [2 * d - 9 if d > 4 else 2 * d for d in digits[1::2]]
    return len(set(digits)) > 2 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _is_iban(number: str) -> bool:
    turned = number[4:] + number[:4]
    return 15 <= len(number) <= 34 and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1


# ---------------------------------------------------------------------------------------------------------------- names

_PERSON = r"[^\W\d_][\w.'\u2019-]{0,30}(?: (?:[^\W\d_][\w.'\u2019-]{0,30})){0,4}"
_MAIL_OPENS = re.compile(r"<[\w.%+-]{1,64}@")
_PERSON_ENDS = re.compile(rf"(?P<v>{_PERSON})[\"']? ?\Z")
_BLAME = re.compile(rf"\((?P<v>{_PERSON}) +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{{4}} +\d+\)")
_BESIDE_MAIL = re.compile(
    rf"\"?[nN]ame\\*\"?\s{{0,4}}[:=]\s{{0,4}}\\*[\"'](?P<v>{_PERSON})\\*[\"']\s{{0,4}},\s{{0,16}}\\*\"?e?-?mail\b"
)
_FULL_NAME = re.compile(
    rf"(?:full_?[nN]ame|real_?[nN]ame|[cC]ard_?[hH]older(?:_?[nN]ame)?|author_?[nN]ame|committer_?[nN]ame|assignee|reporter)"
    rf"\\*[\"']?\s{{0,4}}[:=]\s{{0,4}}\\*[\"']?(?P<v>{_PERSON})"
)
_ACCOUNT = re.compile(rf":x:\d{{1,6}}:\d{{1,6}}:(?P<v>{_PERSON})[,:]")
_TRAILER_WORDS = {"author": "author", "committer": "committer", "tagger": "tagger", "-by:": "_by", "user.name": "user"}
_FULL_NAME_WORDS = ("fullname", "full_name", "real_name", "realname", "holder", "assignee", "reporter")
PEOPLE_TRIGGERS = (*_TRAILER_WORDS.values(), *_FULL_NAME_WORDS, "mail")
_TRAILER = re.compile(
    rf"(?i:author|committer|tagger|-by|user\.name)(?i:_name)?[\"']?[:=\s]{{1,4}}[\"']?(?P<v>{_PERSON})"
)
_NOT_PEOPLE = re.compile(
    r"(?i)\b(?:claude|anthropic|bot|github|gitlab|openai|codex|copilot|cursor|gemini|google|actions?"
    r"|dependabot|renovate|team|inc|ltd|llc|gmbh|foundation|contributors?|authors?|"
    r"noreply|no-reply|example|your|name|unknown|user|date|commit|merge|openhands|devin|aider|amp"
    r"|agent|assistant|ci|semantic-release|web-flow|the|community|project|developers?|maintainers?|not"
    r"|committed|yet)\b"
)


def name_spans(text: str, lowered: str, words: Set[str]) -> Iterator[Span]:
    """Yield people's names: in front of a mail address, or behind a git trailer."""
    if "@" in text and "<" in text:
        for mail in _MAIL_OPENS.finditer(text):
            yield from _person_before(text, mail.start())
    if "00 " in text and "(" in text:
        yield from _named_people(text, _BLAME, "git_blame")
    if "mail" in words and "ame" in text:
        yield from _named_people(text, _BESIDE_MAIL, "name_beside_mail")
    if not words.isdisjoint(_FULL_NAME_WORDS):
        yield from _named_people(text, _FULL_NAME, "full_name")
    if ":x:" in text:
        yield from _named_people(text, _ACCOUNT, "account")
    for word, trigger in _TRAILER_WORDS.items():
        at = lowered.find(word) if trigger in words else -1
        while at >= 0:
            if (found := _TRAILER.match(text, at)) and _is_person(name := found["v"].strip()):
                yield found.start("v"), found.start("v") + len(name), "NAME", "git_name"
            at = lowered.find(word, at + len(word))


_PARTICLES = frozenset("van von der den de da dos das del della di du la le ten ter zu bin ibn al el y e".split())


def _named_people(text: str, pattern: re.Pattern[str], rule: str) -> Iterator[Span]:
    for found in pattern.finditer(text):
        if _is_person(found["v"]):
            yield *found.span("v"), "NAME", rule


def _is_person(name: str) -> bool:
    return " " in name and not _NOT_PEOPLE.search(name) and all(part[:1].isupper() or part in _PARTICLES or not part.isascii() for part in name.split())


def _person_before(text: str, at: int) -> Iterator[Span]:
    """Yield the capitalised words that stand before a mail address, unless they name no person."""
    begin = max(0, at - 80)
    found = _PERSON_ENDS.search(text[begin:at])
    if not found:
        return
    words, start = found["v"].split(" "), begin + found.start("v")
    while words and not words[0][:1].isupper():
        start += len(words.pop(0)) + 1
    person = " ".join(words)
    alone = len(words) == 1 and next(mail_spans(text[at : at + 120]), None) is None
    if person and not alone and not _NOT_PEOPLE.search(person):
        yield start, start + len(person), "NAME", "name_before_mail"


# --------------------------------------------------------------------------------------------------------- home folders

_GENERIC = frozenset(
    [
        "user",
        "users",
        "username",
        "you",
        "yourname",
        "your-name",
        "your_username",
        "name",
        "me",
        "root",
        "admin",
        "administrator",
        "ubuntu",
        "debian",
        "runner",
        "runneradmin",
        "node",
        "vscode",
        "app",
        "coder",
        "codespace",
        "ec2-user",
        "shared",
        "public",
        "default",
        "all",
        "docker",
        "vagrant",
        "jenkins",
        "circleci",
        "linuxbrew",
        "travis",
        "agent",
        "sandbox",
        "workspace",
        "work",
        "home",
        "code",
        "test",
        "tester",
        "dev",
        "developer",
        "openhands",
        "nonroot",
        "swe-agent",
        "sweagent",
        "claude",
        "build",
        "builder",
        "ci",
        "git",
        "www",
        "www-data",
        "guest",
        "nobody",
        "foo",
        "bar",
        "xxx",
        "someone",
        "somebody",
        "library",
        "local",
        "opt",
        "src",
        "project",
        "projects",
        "path",
        "to",
        "repo",
        "repos",
        "tmp",
        "temp",
        "data",
        "host",
        "container",
        "gitpod",
        "codex",
        "oracle",
        "azureuser",
        "opc",
        "core",
        "pi",
        "daemon",
        "demo",
        "example",
        "sample",
        "appuser",
        "mambauser",
        *("postgres", "mysql", "redis", "nginx", "apache", "mongodb", "elasticsearch", "rabbitmq", "grafana", "prometheus"),
        *("ftp", "mail", "sshd", "systemd", "bin", "sys", "games", "proxy", "backup", "deploy", "svc", "api", "web", "db"),
        *("server", "client", "steam", "odoo", "django", "airflow", "spark", "hadoop", "kafka", "tomcat", "gitlab-runner"),
        *("actions", "github", "site", "vsts", "cloud-user", "cloudshell-user", "centos", "fedora", "alpine", "arch", "kali"),
        *("rocky", "bitnami", "rancher", "staff", "wheel", "operator", "service", "system", "frappe", "discourse", "minecraft"),
        "jovyan",
        "kaggle",
        "studio",
        "model",
        "models",
        "desktop",
        "documents",
        "downloads",
    ]
)
_USER = re.compile(r"(?P<v>[A-Za-z][\w.-]{1,31}(?:~\d)?)(?=[/\\\s\"'`:;,)\]}>|%*?&!<\x1b]|\Z)")
_DASHED_USER = re.compile(r"(?P<v>[A-Za-z][A-Za-z0-9_.]{1,31})(?=[-/\\\s\"'`:;,)\]}>\x1b]|\Z)")
_TILDE = re.compile(r"(?:cd ~|(?<![\w/.~@^-])~(?=[\w.-]{3,32}/))([a-z][\w.-]{2,31})(?=[/\s\"'\\]|\Z)")
_HOMES = (
    *((anchor, _USER) for anchor in ("/home/", "/Users/", "\\Users\\", "%2FUsers%2F", "%2Fhome%2F")),
    *((anchor, _DASHED_USER) for anchor in ("-Users-", "-home-")),
)


_PATH_BEFORE = re.compile(r"[\w.@+~$:/-]*\Z")
_SOURCE_TREE = re.compile(
    r"(?:\A|/)(?:src|apps?|pages|components|containers|views|routes|router|templates|layouts|lib|public|static|assets|screens"
    r"|web|ui|api|node_modules|modules|features?|controllers|resources|frontend|tests?|docs|locales|presentation|activities)(?:/|\Z)"
)
_HOST = re.compile(r"https?://[^/]*")
_SAID_USER = re.compile(
    r"(?:uid=\d{3,6}\(|\[sudo\] password for |\bwhoami\r?\n|\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=)(?P<v>[A-Za-z][\w.-]{1,31})(?=[):\s\"']|\Z)"
)
_PROMPT = re.compile(r"@[\w.-]{1,60}[ :][~/][^\n$%#@]{0,80}[$%#](?=\s|\Z)")
_PROMPTED = re.compile(r"(?:\A|[\n\[]|\) )(?P<v>[a-z][\w.-]{1,31})\Z")


def home_users(text: str) -> Iterator[str]:
    """Yield the user names that home folders, prompts and the environment in the text give away."""
    if "~" in text:
        yield from (name for name in _TILDE.findall(text) if not _is_generic(name))
    if "uid=" in text or "USER" in text or "LOGNAME" in text or "[sudo]" in text or "whoami" in text:
        yield from (name for name in _SAID_USER.findall(text) if not _is_generic(name))
    if "@" in text and "~" in text:
        for prompt in _PROMPT.finditer(text):
            before = _PROMPTED.search(text[max(0, prompt.start() - 34) : prompt.start()])
            if before and not _is_generic(before["v"]):
                yield before["v"]
    if "home" not in text and "Users" not in text:
        return
    for anchor, pattern in _HOMES:
        at = text.find(anchor)
        while at >= 0:
            rooted = anchor[0] != "/" or _is_rooted(text[max(0, at - 80) : at])
            at += len(anchor)
            while text[at : at + 1] == "\\":  # JSON in JSON doubles them
                at += 1
            if rooted and (found := pattern.match(text, at)) and not _is_generic(name := found["v"].rstrip(".")):
                yield name
            at = text.find(anchor, at)


def _is_rooted(before: str) -> bool:
    """Tell the folder of homes from a folder of a program that is called so: `src/home/`, `https://x.io/home/`."""
    found = _PATH_BEFORE.search(before)
    path = found[0] if found else ""
    return not _HOST.fullmatch(path) and not _SOURCE_TREE.search(path)


def _is_generic(name: str) -> bool:
    return name.lower() in _GENERIC or name.lower().startswith(("user", "your", "example", "some"))
