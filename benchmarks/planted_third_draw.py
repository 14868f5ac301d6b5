"""Fill the holes of the third set's templates by chance: `«b62 36»`, `«host»`, `«iban DE»`.

In: a template and a random generator. Out: the text.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
import zlib
from collections.abc import Callable

_HOLE = re.compile(r"«(\w+)(?: ([^«»]*))?»")
_LETTERS, _DIGITS = string.ascii_letters, string.digits
_B62 = _DIGITS + string.ascii_uppercase + string.ascii_lowercase
_SYMBOLS = "!#%*+=.^~?"

ALPHABETS = {
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "num": _DIGITS,
    "low": string.ascii_lowercase,
    "up": string.ascii_uppercase,
    "abc": _LETTERS,
    "b62": _B62,
    "b36": _DIGITS + string.ascii_lowercase,
    "B36": _DIGITS + string.ascii_uppercase,
    "b32": string.ascii_lowercase + "234567",
    "B32": string.ascii_uppercase + "234567",
    "b58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "b64": _B62 + "+/",
    "b64u": _B62 + "-_",
    "crock": "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "nix": "0123456789abcdfghijklmnpqrsvwxyz",
    "odd": _B62 + "!#$%()*+,-.:;=?@[]^_{|}~",
}
_WORDS = (
    "amber anchor apron arrow atlas autumn badge banjo barley basil beacon birch bishop blossom bonsai bramble "
    "bridge buffer cactus camel canyon carbon castle cedar cellar chapel cherry cipher citrus clover cobalt "
    "comet copper coral cotton crater cricket crystal dagger daisy delta desert dragon drift eagle ember engine "
    "falcon feather fennel ferry fiddle finch forest fossil garnet ginger glacier goblet granite gravel grove "
    "hammer harbor hazel heron hollow indigo island ivory jasmine jungle juniper kettle ladder lagoon lantern "
    "lemon lichen linen lotus magnet maple marble meadow meteor mirror mosaic mountain nectar nickel nutmeg "
    "oasis olive onyx orchid otter paddle pebble pepper pigeon pillow planet plaza pollen poplar prairie prism "
    "pumpkin quartz quiver rabbit raven ribbon river rocket saddle saffron sailor salmon sandal sierra silver "
    "socket sparrow spruce summit sunset temple thistle thunder timber tulip tundra turtle valley velvet violet "
    "walnut willow "
)
WORDS = tuple(_WORDS.split())
# From the list that wallets share (BIP 39).
_WALLET_WORDS = (
    "abandon ability absent absorb abstract absurd accident acid acoustic acquire actress adapt addict adjust "
    "admit advance aerobic affair afford airport aisle alarm album alcohol alien alley alpha amateur amazing "
    "amused analyst ancient ankle announce annual antenna antique anxiety apology approve april arctic arena "
    "armor arrange arrest artefact artist artwork aspect assault asthma athlete attitude auction august autumn "
    "average avocado awesome awkward zebra zero zone zoo "
)
_SYLLABLES = "ba dor ve lin ra mos ti kel nu fen sha rok ju wen pa gri lo tav mi zel du har ne sol ka bri"
_FIRST = (
    "Anneke Bartosz Chiamaka Dmitri Eleni Farouk Giulia Hyun Ingrid Joaquin Katarzyna Leopold Mireille Nikhil Oyelaran"
)
_LAST = (
    "Abernathy Brzezinski Castellano Dragomir Eriksdottir Fitzwilliam Grunewald Hashimoto Iyengar Jankowski Kowalczyk"
)


def draw(template: str, rng: random.Random) -> str:
    """Return the template with each hole filled; holes in arguments do not nest."""
    return _HOLE.sub(lambda hole: _fill(hole[1], hole[2] or "", rng), template)


def _fill(name: str, argument: str, rng: random.Random) -> str:
    if name in ALPHABETS:
        size, _, chars = argument.partition(" ")
        alphabet = _range(chars) if chars else ALPHABETS[name]
        return "".join(rng.choices(alphabet, k=_between(size, rng)))
    return _MAKERS[name](argument, rng)


def _range(chars: str) -> str:
    first, _, last = chars.partition("-")
    return "".join(map(chr, range(ord(first), ord(last) + 1))) if last else chars


def _between(size: str, rng: random.Random) -> int:
    low, _, high = (size or "1").partition("-")
    return rng.randint(int(low), int(high or low))


def _chars(alphabet: str, size: int, rng: random.Random) -> str:
    return "".join(rng.choices(ALPHABETS[alphabet], k=size))


def _word(argument: str, rng: random.Random) -> str:
    return rng.choice(WORDS)


def _one_of(argument: str, rng: random.Random) -> str:
    return rng.choice(argument.split("|"))


def _user(argument: str, rng: random.Random) -> str:
    return "".join(rng.sample(_SYLLABLES.split(), 3)) + rng.choice("bdgklmnrtz")


def _domain(argument: str, rng: random.Random) -> str:
    return f"{_user('', rng)}-{rng.choice(WORDS)}.{argument or rng.choice(('com', 'io', 'dev', 'net', 'co.uk', 'de'))}"


def _host(argument: str, rng: random.Random) -> str:
    return f"{rng.choice(WORDS)}-{rng.randint(1, 40)}.{_domain('', rng)}"


def _full_name(argument: str, rng: random.Random) -> str:
    return f"{rng.choice(_FIRST.split())} {rng.choice(_LAST.split())}-{_user('', rng).capitalize()}"


def _email(argument: str, rng: random.Random) -> str:
    return f"{rng.choice(_FIRST.split()).lower()}.{_user('', rng)}@{_domain(argument, rng)}"


def _strong(argument: str, rng: random.Random) -> str:
    """A generated password with symbols that need no escape in quotes, XML or JSON."""
    body = [
        rng.choice(_B62),
        rng.choice(_DIGITS),
        rng.choice(_SYMBOLS),
        rng.choice("ABCDEFGHKM"),
        rng.choice("abcdefghk"),
    ]
    body += rng.choices(_B62 + _SYMBOLS, k=rng.randint(8, 14))
    rng.shuffle(body)
    return rng.choice(_LETTERS) + "".join(body) + rng.choice(_DIGITS)


def _safe(argument: str, rng: random.Random) -> str:
    """A generated password that a URL, a shell and a YAML file take as it is."""
    body = rng.choice(_LETTERS) + rng.choice(_DIGITS) + "".join(rng.choices(_B62 + "-_", k=rng.randint(11, 18)))
    return body + rng.choice(_LETTERS) + rng.choice(_DIGITS)


def _human(argument: str, rng: random.Random) -> str:
    """A password that a person made up."""
    first, second = rng.sample(WORDS, 2)
    number, mark = rng.randint(10, 9999), rng.choice("!?#*")
    leet = first.replace("a", "4").replace("e", "3").replace("i", "1")
    return rng.choice(
        (
            f"{first.title()}{number}{mark}",
            f"{leet.title()}{second.title()}{number}",
            f"{first}{mark}{second.title()}{number}",
        )
    )


def _phrase(argument: str, rng: random.Random) -> str:
    return (argument or "-").join(rng.sample(WORDS, 4)) + str(rng.randint(10, 99))


def _base62(number: int, size: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 62)
        digits = _B62[rest] + digits
    return digits.rjust(size, "0")


def _checked(prefix: str, rng: random.Random) -> str:
    """A token whose last six characters are the CRC32 of the thirty before them, as GitHub and npm write it."""
    body = _chars("b62", 30, rng)
    return prefix + body + _base62(zlib.crc32(body.encode()), 6)


def _b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _jwt(argument: str, rng: random.Random) -> str:
    header: dict[str, object] = {"alg": rng.choice(("HS256", "RS256", "ES256")), "typ": "JWT"}
    if rng.random() < 0.5:
        header["kid"] = _chars("b62", 12, rng)
    issued = rng.randint(1_700_000_000, 1_790_000_000)
    payload = {"sub": _chars("b36", 16, rng), "iss": _domain("", rng), "iat": issued, "exp": issued + 3600}
    parts = (_b64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, payload))
    return ".".join((*parts, _chars("b64u", 43, rng)))


def _b64_of(argument: str, rng: random.Random) -> str:
    """The base64 of one of a few secret texts."""
    texts = {
        "basic": f"{_user('', rng)}:{_safe('', rng)}",
        "robot": f"{rng.choice(WORDS)}-ci:{_chars('b62', 32, rng)}",
        "password": _safe("", rng),
        "key": "-----BEGIN RSA PRIVATE KEY-----\n" + _chars("b64", 240, rng),
        "cert": "-----BEGIN CERTIFICATE-----\n" + _chars("b64", 240, rng),
        "png": "\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + "".join(chr(rng.randrange(256)) for _ in range(300)),
        "text": " ".join(rng.sample(WORDS, 12)),
    }
    return base64.b64encode(texts[argument].encode("latin-1")).decode()


def _body(argument: str, rng: random.Random) -> str:
    """Lines of base64 as a key file holds them; `flat` has them in one line with `\\n` written out."""
    width = 70 if argument == "openssh" else 64
    start = "b3BlbnNzaC1rZXktdjEAAAAA" if argument == "openssh" else "MII" + _chars("up", 1, rng)
    lines = [start + _chars("b64", width - len(start), rng)]
    lines += [_chars("b64", width, rng) for _ in range(rng.randint(3, 8))] + [_chars("b64", 42, rng) + "=="]
    return ("\\n" if argument == "flat" else "\n").join(lines)


def _blob(argument: str, rng: random.Random) -> str:
    """Lines of one alphabet: `hex 32 16` is sixteen lines of 32."""
    alphabet, width, count = argument.split()
    return "\n".join(_chars(alphabet, int(width), rng) for _ in range(int(count)))


def _luhn(argument: str, rng: random.Random) -> str:
    """A card number that passes the check, from `prefix size`, with a separator if one is named."""
    prefix, size, *separator = argument.split(",")
    digits = prefix + _chars("num", int(size) - len(prefix) - 1, rng)
    doubled = [int(d) * (2 if i % 2 == 0 else 1) for i, d in enumerate(reversed(digits))]
    digits += str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)
    cuts = (4, 6, 5) if size == "15" else (4, 4, 4, 4)
    at, groups = 0, []
    for cut in cuts:
        groups.append(digits[at : at + cut])
        at += cut
    return (separator[0] if separator else "").join(groups)


def _not_luhn(argument: str, rng: random.Random) -> str:
    """Sixteen digits that no card has: the check digit is off by one."""
    good = _luhn("4,16", rng)
    return good[:-1] + str((int(good[-1]) + 1) % 10)


def _iban(argument: str, rng: random.Random) -> str:
    """A bank account number with the right check digits; a comma asks for groups of four."""
    country, _, spaced = argument.partition(",")
    account = {"DE": "«num 18»", "GB": "BARC«num 14»", "NL": "INGB0«num 9»", "FR": "«num 23»", "ES": "«num 20»"}[
        country
    ]
    body = draw(account, rng)
    number = int("".join(str(int(char, 36)) for char in body + country + "00"))
    text = f"{country}{98 - number % 97:02}{body}"
    return " ".join(text[i : i + 4] for i in range(0, len(text), 4)) if spaced else text


def _cpf(argument: str, rng: random.Random) -> str:
    """A Brazilian tax number with its two check digits."""
    digits = [rng.randrange(10) for _ in range(9)]
    for _ in range(2):
        rest = sum(d * w for d, w in zip(digits, range(len(digits) + 1, 1, -1), strict=True)) % 11
        digits.append(0 if rest < 2 else 11 - rest)
    text = "".join(map(str, digits))
    return f"{text[:3]}.{text[3:6]}.{text[6:9]}-{text[9:]}"


def _public_ip(argument: str, rng: random.Random) -> str:
    first = rng.choice((5, 23, 37, 45, 62, 78, 81, 93, 104, 129, 146, 151, 178, 185, 188, 195, 212, 217))
    return f"{first}.{rng.randint(1, 250)}.{rng.randint(1, 250)}.{rng.randint(2, 250)}"


def _public_ip6(argument: str, rng: random.Random) -> str:
    head = rng.choice(("2a01:4f8", "2a02:8109", "2600:1700", "2001:9e8", "2804:14d"))
    groups = [f"{rng.randint(0x1000, 0xFFFF):x}" for _ in range(6)]
    return f"{head}:{groups[0]}:{groups[1]}::{groups[2]}" if argument == "short" else ":".join((head, *groups))


def _uuid(argument: str, rng: random.Random) -> str:
    return draw("«hex 8»-«hex 4»-4«hex 3»-«hex 1 89ab»«hex 3»-«hex 12»", rng)


def _pairs(argument: str, rng: random.Random) -> str:
    """Upper-case hex in pairs with colons, as a fingerprint is written."""
    return ":".join(_chars("HEX", 2, rng) for _ in range(int(argument)))


def _seed_phrase(argument: str, rng: random.Random) -> str:
    return " ".join(rng.sample(_WALLET_WORDS.split(), 12))


_MAKERS: dict[str, Callable[[str, random.Random], str]] = {
    "word": _word,
    "of": _one_of,
    "user": _user,
    "domain": _domain,
    "host": _host,
    "fullname": _full_name,
    "email": _email,
    "strong": _strong,
    "safe": _safe,
    "human": _human,
    "phrase": _phrase,
    "checked": _checked,
    "jwt": _jwt,
    "b64of": _b64_of,
    "body": _body,
    "blob": _blob,
    "luhn": _luhn,
    "notluhn": _not_luhn,
    "iban": _iban,
    "cpf": _cpf,
    "ip": _public_ip,
    "ip6": _public_ip6,
    "uuid": _uuid,
    "pairs": _pairs,
    "seedphrase": _seed_phrase,
    "ext": lambda argument, rng: rng.choice(("py", "ts", "go", "yml", "env", "java", "md")),
    "var": lambda argument, rng: f"{rng.choice(WORDS)}_{rng.choice(WORDS)}".upper(),
    "camel": lambda argument, rng: "".join(word.title() for word in rng.sample(WORDS, int(argument or 3))),
    "port": lambda argument, rng: str(rng.choice((3000, 5432, 6380, 8080, 8443, 9092, 27017))),
    "year": lambda argument, rng: str(rng.randint(2023, 2026)),
}
