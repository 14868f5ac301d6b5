"""Fill the templates of the fourth planted set.

In: a template with `«hole»`s and a random source. Out: the text, each hole drawn by chance.
"""

from __future__ import annotations

import base64
import json
import random
import re
import string
import uuid
from collections.abc import Callable

_HOLE = re.compile(r"«(\w+)(?: ([^»]+))?»")
_ALNUM = string.ascii_letters + string.digits
ALPHABETS = {
    "an": _ALNUM,
    "alpha": string.ascii_letters,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "lo": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "num": string.digits,
    "nz": "123456789",
    "b64": _ALNUM + "+/",
    "url": _ALNUM + "-_",
    "b32": string.ascii_uppercase + "234567",
    "bech": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    "b58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
}
FIRST = [
    "Marisol",
    "Tobias",
    "Ngozi",
    "Henrik",
    "Priya",
    "Callum",
    "Yuki",
    "Agnieszka",
    "Mateo",
    "Ingrid",
    "Dmitri",
    "Aaliyah",
    "Farid",
    "Solveig",
    "Kwame",
]
LAST = [
    "Okonkwo",
    "Lindqvist",
    "Herrera",
    "Patel",
    "MacLeod",
    "Tanaka",
    "Nowak",
    "Vasquez",
    "Sorensen",
    "Volkov",
    "Haddad",
    "Mensah",
    "Bergstrom",
]
WORDS = [
    "ledger",
    "harbor",
    "falcon",
    "invoice",
    "canyon",
    "metric",
    "parcel",
    "signal",
    "orchard",
    "beacon",
    "quartz",
    "saffron",
    "tundra",
    "ribbon",
]
HOSTS = ["northpeak", "brightloom", "ferrovia", "quillworks", "tidalbase", "mossgate", "cedarline", "okapi-data"]
STREETS = ["Maple", "Juniper", "Wexford", "Alder", "Kestrel", "Birchwood", "Larkspur"]
MNEMONIC = [
    "abandon",
    "ability",
    "able",
    "about",
    "above",
    "absent",
    "absorb",
    "abstract",
    "absurd",
    "abuse",
    "access",
    "accident",
    "account",
    "accuse",
    "achieve",
    "acid",
    "acoustic",
    "acquire",
    "across",
    "act",
    "action",
    "actor",
    "actress",
    "actual",
    "adapt",
    "add",
    "addict",
    "address",
    "adjust",
    "admit",
    "adult",
    "advance",
    "advice",
    "zebra",
    "zero",
    "zone",
    "zoo",
    "wrist",
    "write",
    "wrong",
    "yard",
    "year",
    "yellow",
    "young",
    "youth",
]


def draw(template: str, rng: random.Random) -> str:
    """Return the template with each hole filled by chance."""
    return _HOLE.sub(lambda hole: _fill(hole[1], hole[2] or "", rng), template)


def _fill(name: str, argument: str, rng: random.Random) -> str:
    if name in ALPHABETS:
        return "".join(rng.choices(ALPHABETS[name], k=int(argument)))
    if name == "in":
        low, high = map(int, argument.split("-"))
        return str(rng.randint(low, high))
    if name == "one":
        return rng.choice(argument.split("|"))
    return DRAWS[name](rng)


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _password(rng: random.Random) -> str:
    """Draw a password as people make them: words, digits and a sign that no shell or file format takes for its own."""
    sign = "!*-_+^~"
    made = rng.choice(("{w}{s}{n}{x}", "{x}{s}{w}{n}", "{a}{s}{b}", "{w}-{w2}-{x}{n}{s}"))
    return made.format(
        w=rng.choice(WORDS).title(),
        w2=rng.choice(WORDS),
        s=rng.choice(sign),
        n=rng.randint(10, 9999),
        x="".join(rng.choices(_ALNUM, k=5)),
        a="".join(rng.choices(_ALNUM, k=7)),
        b="".join(rng.choices(_ALNUM, k=7)),
    )


def _url_password(rng: random.Random) -> str:
    return re.sub(r"[!*+^~]", "_", _password(rng))


def _encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _jwt(rng: random.Random) -> str:
    head = _encoded(json.dumps({"alg": rng.choice(("HS256", "RS256", "ES256")), "typ": "JWT"}, separators=(",", ":")))
    body = {"sub": str(rng.randint(10**5, 10**9)), "iat": rng.randint(1_700_000_000, 1_790_000_000), "jti": _uuid(rng)}
    return f"{head}.{_encoded(json.dumps(body, separators=(',', ':')))}.{draw('«url 43»', rng)}"


def _jwe(rng: random.Random) -> str:
    head = _encoded('{"alg":"dir","enc":"A256GCM"}')
    return head + draw("..«url 16».«url 220».«url 22»", rng)


def _supabase(rng: random.Random) -> str:
    head = _encoded('{"alg":"HS256","typ":"JWT"}')
    body = {"iss": "supabase", "ref": draw("«lower 20»", rng), "role": "service_role", "iat": rng.randint(1, 10**9)}
    return f"{head}.{_encoded(json.dumps(body))}.{draw('«url 43»', rng)}"


def _lines(count: int, last: int, joint: str = "\n") -> Callable[[random.Random], str]:
    def drawn(rng: random.Random) -> str:
        return joint.join([*(draw("«b64 64»", rng) for _ in range(count)), draw(f"«b64 {last}»=", rng)])

    return drawn


def _user(rng: random.Random) -> str:
    first, last = rng.choice(FIRST).lower(), rng.choice(LAST).lower()
    return rng.choice(
        (f"{first[0]}{last}{rng.randint(2, 99)}", f"{first}.{last}", f"{first}{last}", f"{last}_{first[0]}")
    )


def _mail(rng: random.Random) -> str:
    domain = rng.choice((*(f"{host}.{rng.choice(('io', 'com', 'co.uk', 'dev'))}" for host in HOSTS), "gmail.com"))
    return f"{_user(rng)}@{domain}"


def _ip(rng: random.Random) -> str:
    first = rng.choice((34, 52, 63, 81, 93, 104, 138, 159, 185, 212))
    return f"{first}.{rng.randint(1, 254)}.{rng.randint(1, 254)}.{rng.randint(1, 254)}"


def _card(rng: random.Random) -> str:
    brand, size = rng.choice((("4", 16), ("5" + rng.choice("12345"), 16), ("37", 15)))
    digits = brand + "".join(rng.choices(string.digits, k=size - len(brand) - 1))
    total = sum(sum(divmod(int(d) * 2, 10)) if i % 2 == 0 else int(d) for i, d in enumerate(reversed(digits)))
    return digits + str(-total % 10)


def _spaced_card(rng: random.Random) -> str:
    digits = next(card for card in iter(lambda: _card(rng), "") if len(card) == 16)
    return " ".join(digits[i : i + 4] for i in range(0, 16, 4))


def _iban(rng: random.Random) -> str:
    country, account = rng.choice((("DE", "«num 18»"), ("ES", "«num 20»"), ("GB", "«upper 4»«num 14»")))
    bban = draw(account, rng)
    number = "".join(str(int(c, 36)) for c in bban + country + "00")
    return f"{country}{98 - int(number) % 97:02}{bban}"


def _basic(rng: random.Random) -> str:
    return base64.b64encode(f"{rng.choice(WORDS)}:{_url_password(rng)}{draw('«an 6»', rng)}".encode()).decode()


DRAWS: dict[str, Callable[[random.Random], str]] = {
    "uuid": _uuid,
    "pw": _password,
    "upw": _url_password,
    "jwt": _jwt,
    "jwe": _jwe,
    "supabase": _supabase,
    "pem": _lines(12, 43),
    "pem1": _lines(25, 51, "\\n"),
    "ec": _lines(2, 35),
    "user": _user,
    "mail": _mail,
    "ip": _ip,
    "card": _card,
    "spaced_card": _spaced_card,
    "iban": _iban,
    "basic": _basic,
    "first": lambda rng: rng.choice(FIRST),
    "last": lambda rng: rng.choice(LAST),
    "word": lambda rng: rng.choice(WORDS),
    "host": lambda rng: rng.choice(HOSTS),
    "street": lambda rng: rng.choice(STREETS),
    "mnemonic": lambda rng: " ".join(rng.choices(MNEMONIC, k=12)),
    "b64json": lambda rng: _encoded(json.dumps({"u": _uuid(rng), "a": draw("«lo 12»", rng), "iat": rng.random()})),
    "day": lambda rng: f"{rng.randint(1, 28):02}",
    "time": lambda rng: f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}",
}
