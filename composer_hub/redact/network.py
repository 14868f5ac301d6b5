"""Network and hardware addresses.

In: a text. Out: spans of public addresses. Private and documentation networks, well-known servers and versions stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from composer_hub.redact.data import words
from composer_hub.redact.judge import is_hex
from composer_hub.redact.match import Span, Subject, is_inside, line_before

# A pattern that begins with one character, not with a repeat, lets the engine skip to the places of that
# character.
_IPV4 = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w]|\.\d)")
_VERSION_BEFORE = re.compile(
    r"(?i)(?:version|release|ver|build|\bv|rev|tag|==|>=|<=|~=|\^|~|(?<![/\[])/|[a-z]-|\"version\")[\s:=\"']{0,4}$"
)
_VERSION_LINE = re.compile(r"(?i)version|(?:chrome|safari|firefox|edg|opera|electron|driver|assembly)[/ ]|\boid\b")
_PUBLIC_SERVERS = frozenset(words("public servers"))
_HEX_COLON = frozenset("0123456789abcdefABCDEF:")
_ADDRESS_WORD = re.compile(
    r"(?i)(?:addr|address|ip|ipv4|host|server|client|peer|remote|source|src|dst|from|to|inet|ffff|nameserver|gateway|tcp|udp"
    r"|endpoint|listen)\d?:\Z"
)
_GROUP = re.compile(r":(?=[0-9a-fA-F]{0,4}:)")
_SHORT_IPV6 = re.compile(r"2[0-9a-fA-F]{3}::[0-9a-fA-F]")
_HOST_IP = re.compile(r"-(?P<a>\d{1,3})-(?P<b>\d{1,3})-(?P<c>\d{1,3})-(?P<d>\d{1,3})(?=[.\s])")
_MAC = re.compile(r":[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){4}(?![\w:-])|-[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){4}(?![\w:-])")
_MAC_DOTTED = re.compile(r"\.[0-9a-f]{4}\.[0-9a-f]{4}(?![\w.])")


def network_addresses(subject: Subject) -> Iterator[Span]:
    """Yield public IP addresses and hardware addresses."""
    text = subject.text
    if text.count(".") >= 2:
        yield from _ipv4_spans(text)
        yield from _dotted_mac_spans(text)
    if text.count("-") >= 4 and "." in text:
        for match in _HOST_IP.finditer(text):
            if text[match.start() - 1 : match.start()].isalnum() and _is_public(".".join(match.groups())):
                yield Span(match.start() + 1, match.end(), "IP", "ipv4_in_host_name")
    if text.count(":") >= 2 or text.count("-") >= 5:
        yield from _ipv6_spans(text)
        yield from _mac_spans(text)


def _ipv4_spans(text: str) -> Iterator[Span]:
    """Yield the public addresses that are not versions: `81.2.69.142`."""
    for match in _IPV4.finditer(text):
        start, end = _first_octet(text, match.start()), match.end()
        if start == match.start():
            continue
        continues = is_inside(text, start) and not _ADDRESS_WORD.search(text, max(0, start - 16), start)
        if not continues and _is_public(text[start:end]) and not _is_version(text, start, end):
            yield Span(start, end, "IP", "ipv4")


def _dotted_mac_spans(text: str) -> Iterator[Span]:
    """Yield the addresses in groups of four: `3c22.fb01.9ae7`."""
    for match in _MAC_DOTTED.finditer(text):
        start = match.start() - 4
        parts = text[max(0, start) : match.end()].split(".")
        mixed = any(c.isalpha() for c in match[0]) and any(c.isdigit() for c in match[0])
        if mixed and not is_inside(text, start) and len(parts[0]) == 4 and all(map(is_hex, parts)):
            yield Span(start, match.end(), "MAC", "mac_dotted")


def _mac_spans(text: str) -> Iterator[Span]:
    """Yield the addresses in groups of two: `3c:22:fb:01:9a:e7`."""
    for match in _MAC.finditer(text):
        start = match.start() - 2
        address = text[max(0, start) : match.end()]
        varies = any(c.isalpha() for c in address) and len(set(address)) > 4
        if varies and is_hex(address[:2].lower()) and not is_inside(text, start):
            yield Span(start, match.end(), "MAC", "mac")


def _first_octet(text: str, dot: int) -> int:
    start = dot
    while start > 0 and dot - start < 3 and text[start - 1].isdigit() and text[start - 1].isascii():
        start -= 1
    return start


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
    named = max(octets) <= 40 and re.search(r"[A-Za-z]{3} \Z", text[max(0, start - 4) : start])
    return (
        max(octets) <= 25
        or bool(named)
        or octets[2:] == [0, 0]
        or bool(_VERSION_LINE.search(line_before(text, start)[-24:]))
    )


def _ipv6_spans(text: str) -> Iterator[Span]:
    last = -1
    for group in _GROUP.finditer(text):
        if group.start() <= last:
            continue
        start, last = _hex_run(text, group.start())
        candidate = text[start:last].rstrip(":")
        if (
            text[last : last + 1] != "."
            and 6 <= len(candidate) <= 39
            and (candidate.count(":") >= 3 or _SHORT_IPV6.match(candidate))
            and _is_ipv6(candidate, text, start)
        ):
            yield Span(start, start + len(candidate), "IP", "ipv6")


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
