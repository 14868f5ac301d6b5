"""People whose names a session writes in plain text, and the spellings of a person once one of them is known.

In: the texts of a session, and the addresses and logins found in them. Out: names, and for each the spellings that are
replaced in the whole session: `Anna Krause`, `Krause, Anna`, `A. Krause`, `anna.krause`, `akrause`.

A name counts if a given name begins it, if an address or a login of the session is made of it (`w.achterberg@` and
`Wilhelmina Achterberg`), or if a title or a cue (`contact`, `ask`, `Frau`) is before it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Set

from composer_hub.redact.data import words
from composer_hub.redact.fields import is_given, is_name
from composer_hub.redact.match import fold, is_escaped, line_before
from composer_hub.redact.needles import Needles
from composer_hub.redact.people import is_credited

MIN_PART = 4
"""Letters of a first or last name that is replaced without the other."""
MIN_LOGIN = 5
MAX_PEOPLE = 2_000
"""People of a session whose spellings are looked for."""

_PARTICLES = frozenset(words("particles of names"))
_NO_NAME = frozenset(words("words that are no names"))
_ROLES = frozenset(words("users of no one"))
_WORDS = frozenset(words("users that are words"))
_PARTICLE = "|".join(sorted((re.escape(particle) for particle in _PARTICLES), key=len, reverse=True))
_UPPER = "A-Z" + "".join(chr(code) for code in range(0xC0, 0x530) if chr(code).isupper())
_CAPITALIZED = re.compile(
    rf"[{_UPPER}](?=[^\W\d_]{{0,30}}['\u2019. \u00a0-])[^\W\d_]{{0,30}}(?:['\u2019-][^\W\d_]{{1,30}}){{0,3}}\.?"
    rf"(?:[ \u00a0](?:(?:{_PARTICLE})[ \u00a0]){{0,2}}[{_UPPER}][^\W\d_]{{0,30}}(?:['\u2019-][^\W\d_]{{1,30}}){{0,3}}\.?){{1,5}}"  # noqa: E501
)
_CAPITALIZED_ASCII = re.compile(
    rf"[A-Z](?=[A-Za-z]{{0,30}}['. -])[A-Za-z]{{0,30}}(?:['-][A-Za-z]{{1,30}}){{0,3}}\.?(?: (?:(?:{_PARTICLE}) ){{0,2}}[A-Z][A-Za-z]{{0,30}}(?:['-][A-Za-z]{{1,30}}){{0,3}}\.?){{1,5}}"  # noqa: E501
)
_BESIDE = re.compile(
    r"(?i)\s?[,(:\u2013-]{1,2}\s?(?:(?:tel|phone|mobile|cell|mob|ph)\.?:? ?)?(?:\+\d|\(?0\d|"
    r"[\w.+-]{2,40}@[\w-]+\.)[\d ()/.\w-]{5}"
)
"""A phone number or an address right after a name."""
_TITLE = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Mx|Miss|Dr|Prof|Professor|Sir|Herr|Herrn|Frau|Sig|Signora|Sr|Sra|Srta|Señora?|Don|Doña|Mme|"
    r"Mlle|Madame|Monsieur|Mevr|Dhr|Pan|Pani|Dott|Ing|Rev|Capt|Sgt|Judge|Nurse)\.?|\bM\.) \Z"
)
_CUE = re.compile(
    r"(?i)(?:\b(?:(?:delivery|parcel|package|order|invoice|appointment|booking|reservation|ticket|letter) for|shipped to|contact(?:o|er)?|ask|call|ring|cc|ping|tell|e?mail|message|notify|owner|author|maintainer|reviewer|"  # noqa: E501
    r"approver|assignee|assigned to|reporter|reported by|requested by|(?:approved|signed|review|reviewed|assigned|"
    r"merged|deployed|owned|sent|done|made) (?:by|to|from)|signed off as"
    r"|written by|customer|client|patient|employee|colleague|my (?:manager|boss|wife|husband|partner|brother|sister|"
    r"mother|father|friend)|tenant|landlord|teacher|nurse|doctor|neighbou?r|user:|(?:message|mail|post|comment|reply) (?:from|by)|(?:speak|speaking|talk|talked|"  # noqa: E501
    r"talking|spoke|chat) (?:to|with)|met"
    r"|(?:it|he|she|name|contact|owner|author|reviewer|manager|customer|client|patient|lead|engineer|assignee|person|"
    r"recipient|approver|boss|sponsor|tenant) is|i am|i'm|this is|named"
    r"|hi|hello|hey|dear|hallo|liebe[r]?|bonjour|ciao|hola|benvenut[oa]|bienvenid[oa]|welcome|welcome back|thanks|"
    r"thank you|danke|regards|cheers|grüße|gruß|sincerely|attn|recipient|on behalf of|care of|c/o"
    r"|pregunta por|de parte de|автора?|кунде|клиент|cliente|kunde|kundin|kontakt|contatto)[,:]? \Z)"
)


def accounts_of(emails: Iterable[str], users: Iterable[str]) -> frozenset[str]:
    """Return the parts of addresses and logins: `w.achterberg@` gives `wachterberg` and `achterberg`."""
    accounts: set[str] = set()
    for account in (
        *(email.lower().replace("%40", "@").partition("@")[0] for email in emails),
        *(user.lower() for user in users),
    ):
        parts = [part for part in re.split(r"[^a-z]+", account) if len(part) >= 3]
        if not _ROLES.intersection(parts) and not _NO_NAME.intersection(parts):
            accounts.update(part for part in parts if part not in _WORDS)
            accounts.add("".join(re.findall("[a-z]+", account)))
    return frozenset(account for account in accounts if len(account) >= 3)


_TITLED = re.compile(
    r"(?:Mr|Mrs|Ms|Miss|Dr|Prof|Herrn?|Frau|Signora|Señora?|Mme|Mlle|Madame|Monsieur|Mevrouw|Meneer|"
    r"Pani)\.? (?P<v>[^\W\d_a-z][^\W\d_]{2,20}(?:-[^\W\d_a-z][^\W\d_]{2,20})?)(?![\w(=])"
)


def full_names(text: str, accounts: Set[str] = frozenset()) -> Iterator[str]:
    """Yield the full names of people in a text."""
    pattern = _CAPITALIZED_ASCII if text.isascii() else _CAPITALIZED
    for match in pattern.finditer(text):
        start = match.start()
        before = text[start - 1 : start]
        if (before.isalnum() or before in ("_", "@", "/", "\\", "-", ".", "#", "$")) and not is_escaped(text, start):
            continue
        name = _name_in(match[0], text, start, match.end(), accounts)
        if name and not is_credited(text, start, line_before(text, start, 160)):
            yield name
    yield from _titled(text)
    yield from _first_names(text)
    if "вич" in text or "вна" in text:
        yield from (match[0] for match in _PATRONYMIC.finditer(text))
    yield from (match["v"] for match in _WRITER.finditer(f"\n{text}") if is_name(match["v"], min_words=2))


_PATRONYMIC = re.compile(
    r"\b[А-ЯЁ][а-яё-]{1,30} (?:[А-ЯЁ][а-яё]{1,20} [А-ЯЁ][а-яё]{2,20}(?:вич|вна)|[А-ЯЁ][а-яё]{2,20}(?:вич|вна) [А-ЯЁ][а-яё-]{1,30})\b"  # noqa: E501, RUF001
)
"""A Russian name, whose patronymic no other word has."""
_FIRST = re.compile(r" (?P<v>[^\W\d_a-z][^\W\d_A-Z]{3,15})(?=[\s,.!?;:'\"\u2019)]|\Z)")
_SAID_OF_PEOPLE = re.compile(
    r"\b(?:Oma|Opa|Omi|Opi|Tante|Onkel|Mama|Papa|Mum|Mom|Dad|Grandma|Grandpa|Aunt|Uncle|Abuela|Abuelo|Tía|Tío|Nonna|Nonno|Mamie|Papi"
    r"|Büro|Zimmer|Hi|Hello|Hey|Hallo|Hola|Ciao|Bonjour|Salut|Dear|Liebe|Lieber|Moin|[Tt]hanks|[Tt]hat's|[Ii]t's|[Aa]sk|[Tt]ell|[Nn]ach|[Ff]rag|[Mm]y (?:boss|colleague))"  # noqa: E501
    r",?\Z"
)
_RELATIVES = ("son", "daughter", "wife", "husband", "brother", "sister", "partner", "mother", "father", "nephew", "niece", "cousin")  # fmt: skip  # noqa: E501
_KIN = (*_RELATIVES, *(f"{word}," for word in _RELATIVES))
_OF_KIN = re.compile(rf"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er) (?:{'|'.join(_RELATIVES)}),?\Z")
_HAS = re.compile(
    r"['\u2019]s (?:i?[Pp]hone|i?[Pp]ad|MacBook|[Ll]aptop|[Rr]oom|[Oo]ffice|PC|[Dd]esktop|[Tt]ablet|[Ww]atch|[Aa]ccount|[Mm]achine|[Cc]ar|[Kk]ey|[Bb]irthday|AirPods)"  # noqa: E501
)
_OWNER = re.compile(r"[^\W\d_a-z][^\W\d_A-Z]{3,15}\Z")


_WRITER = re.compile(
    rf"(?m:\n(?:\[[\d./, :APMapm-]{{5,24}}\] )?(?P<v>[{_UPPER}][^\W\d_]{{1,20}}(?:[ -][{_UPPER}][^\W\d_]{{1,20}}){{1,2}})"  # noqa: E501
    r"(?:(?<=\w)(?:,? {1,4}| \[)\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]?:?$))"
)
"""The writer of a chat message, before its time. It begins with a literal, so that the engine can skip."""


def _first_names(text: str) -> Iterator[str]:
    """Yield first names that are alone after a word for people, or before a thing that people have."""
    for match in _FIRST.finditer(text):
        start = match.start()
        is_kin = text.endswith(_KIN, 0, start)
        named = (_OF_KIN if is_kin else _SAID_OF_PEOPLE) if is_kin or is_given(match["v"]) else None
        if named and named.search(text, max(0, start - 16), start) and _is_first_name(match["v"]):
            yield match["v"]
    for match in _HAS.finditer(text) if "'s " in text or "\u2019s " in text else ():
        owner = _OWNER.search(text, max(0, match.start() - 16), match.start())
        if owner and _is_first_name(owner[0]):
            yield owner[0]


def _is_first_name(name: str) -> bool:
    return name.lower() not in _WORDS and is_name(name)


def _titled(text: str) -> Iterator[str]:
    """Yield the surnames after a title."""
    for match in _TITLED.finditer(text):
        if not text[match.start() - 1 : match.start()].isalnum() and is_name(match["v"]) and not match["v"].isupper():
            yield match["v"]


def _name_in(run: str, text: str, start: int, end: int, accounts: Set[str]) -> str:
    """Return the name of a person in a run of capitalized words: `Anna Krause` in `Ask Anna Krause`."""
    parts = run.replace("\u00a0", " ").split(" ")
    following = text[end : end + 1]
    if following and following in "(=_[":
        return ""
    before = line_before(text, start, 40)
    for i, part in enumerate(parts[:-1]):
        given = is_given(part)
        if not _may_begin(part, given, before):
            continue
        chosen = _until_surname(parts[i:], ends=following)
        name = " ".join(chosen).rstrip(".")
        if not is_name(name, min_words=2) or (name.isupper() and not given):
            continue
        if given or _has_account(name, chosen, accounts):
            patronymic = i and re.search(r"(?:вна|вич)\Z", chosen[-1])
            return f"{parts[i - 1]} {name}" if patronymic else name
        cue = before + "".join(f"{earlier} " for earlier in parts[:i])
        is_beside = i == 0 and _BESIDE.match(text, end)
        is_announced = _CUE.search(cue) and len(parts) - i <= 3 and _is_plain(text, end)
        if _TITLE.search(cue) or ((is_beside or is_announced) and not _is_heading(chosen)):
            return name
    return ""


def _may_begin(part: str, given: bool, before: str) -> bool:
    """Return whether a word may be a first name; one that is also a word (`Will`) needs a cue before it."""
    if not part[:1].isupper() or part.endswith("."):
        return False
    return fold(part) not in _NO_NAME or (given and bool(_CUE.search(before)))


def _has_account(name: str, parts: list[str], accounts: Set[str]) -> bool:
    """Return whether an address or a login of the session is made of a name."""
    forms = {*logins_of(name), *(fold(part) for part in parts if len(part) >= MIN_LOGIN)} if accounts else ()
    return not accounts.isdisjoint(forms)


def _is_plain(text: str, end: int) -> bool:
    """Return whether a name is followed by prose, not by code or a title."""
    return not text[end : end + 2].strip() or text[end] in ",.;)'\"<!?" or text[end : end + 2] in (" (", " <")


def _is_heading(parts: list[str]) -> bool:
    """Return whether the words are English words rather than names."""
    return any(
        re.search(r"(?:ing|tion|ment|ness|ity|ics|ings|ions|ers|able|ible|less|ware|ful|ized|ated|ed)\Z", part.lower())
        for part in parts
    )


def _until_surname(parts: list[str], ends: str) -> list[str]:
    """Return a given name and what follows to the end of the surname."""
    chosen = [parts[0]]
    for part in parts[1:]:
        lowered = fold(part).strip(".")
        if lowered in _NO_NAME and lowered not in _PARTICLES:
            break
        if len(chosen) > 1 and not _continues(chosen[-1], part, ends):
            break
        chosen.append(part)
        if len(chosen) >= 5:
            break
    while len(chosen) > 1 and (chosen[-1].lower() in _PARTICLES or (chosen[-1].endswith(".") and len(chosen[-1]) <= 2)):
        chosen.pop()
    return chosen if len(chosen) > 1 else []


def _continues(last: str, part: str, ends: str) -> bool:
    """Return whether a name continues after its second word: after an initial, a particle or a given name."""
    return (
        last.lower() in _PARTICLES
        or part.lower() in _PARTICLES
        or len(last.rstrip(".")) == 1
        or is_given(last)
        or ends in (",", "<", "|", "\t", '"', "'", ")")
    )


# ------------------------------------------------------------------------------------------------------------ spellings


def _folds(part: str) -> set[str]:
    """Return the ways in which logins write a name without accents."""
    lowered = part.lower().replace("\u2019", "").replace("'", "")
    german = lowered.replace("ä", "ae").replace("ö", "oe").replace("ü", "ue").replace("ø", "oe").replace("å", "aa")
    return {form for form in (fold(lowered), fold(german)) if form.isascii()}


def logins_of(name: str) -> set[str]:
    """Return the logins that are made of a name, without signs."""
    parts = [part for part in re.split(r"[ ,\u00a0-]+", name.rstrip(".")) if part]
    if len(parts) < 2:
        return set()
    logins: set[str] = set()
    for first in _folds(parts[0]):
        surnames = _folds("".join(parts[1:])) | _folds(parts[-1])
        for last in surnames:
            logins |= {
                first + last,
                last + first,
                first[:1] + last,
                first[:2] + last,
                last + first[:1],
                first + last[:1],
                first[:3] + last[:3],
            }
    return {login for login in logins if len(login) >= 4}


def spellings_of(name: str) -> Iterator[str]:
    """Yield the full name as texts write it."""
    parts = [part for part in name.replace(",", " ").split() if part]
    if "," in name and len(parts) >= 2:
        parts = [*parts[1:], parts[0]] if name.split(",")[0].count(" ") == 0 else parts
    first, last = parts[0], " ".join(parts[1:])
    if not last:
        yield name
        return
    yield from (
        name,
        f"{first} {last}",
        f"{last}, {first}",
        f"{last} {first}",
        f"{first[0]}. {last}",
        f"{last} {first[0]}.",
    )
    yield from (
        f"{first}\u00a0{last}",
        f"{first}%20{last}",
        f"{first}+{last}",
        f"{first}_{last}",
        f"{first.upper()} {last.upper()}",
        f"{first} {last.upper()}",
        f"{last.upper()} {first}",
        f"{last.upper()}, {first}",
    )
    if len(parts) > 2:
        yield f"{first} {parts[-1]}"
    if any(ord(c) > 127 for c in name):
        yield from (f"{a.title()} {b.title()}" for a in _folds(first) for b in {fold(last), *_folds(last)})


def login_spellings_of(name: str) -> Iterator[str]:
    """Yield the logins of a name that are long enough to be found anywhere, as texts write them."""
    parts = [part for part in re.split(r"[ ,\u00a0]+", name) if part]
    if len(parts) < 2:
        return
    for first in _folds(parts[0].replace("-", "")):
        for last in {*_folds("".join(parts[1:]).replace("-", "")), *_folds(parts[-1].replace("-", ""))}:
            for sign in ".-_":
                yield from (f"{first}{sign}{last}", f"{last}{sign}{first}", f"{first[0]}{sign}{last}")
            yield from (first + last, last + first, first[:1] + last, first[:2] + last, last + first[:1])
            if len(first) >= 4:
                yield first + last[:1]


def parts_of(name: str) -> Iterator[str]:
    """Yield the first and last names that are replaced by themselves."""
    for part in re.split(r"[ ,\u00a0]+", name):
        plain = part.strip(".'\u2019")
        if (
            len(plain) >= MIN_PART
            and fold(plain) not in _NO_NAME | _WORDS | _PARTICLES | _ROLES
            and plain[:1] != plain[:1].lower()
        ):
            yield plain


def words_among(parts: Collection[str], texts: Iterable[str]) -> set[str]:
    """Return the names that the texts also write in lower case, as a word and not as a login."""
    needles = Needles({part.lower() for part in parts})
    used: set[str] = set()
    for text in texts if needles else ():
        for at, word in needles.find(text):
            before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
            if not (
                before.isalnum()
                or after.isalnum()
                or before in ("@", ".", "/", "_", "-", "~")
                or after in ("@", ".", "/", "_", "-")
            ):
                used.add(word)
    return {part for part in parts if part.lower() in used}
