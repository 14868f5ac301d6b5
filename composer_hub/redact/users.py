"""User names that a text reveals: in home folders, prompts, commands and the environment.

In: a text. Out: names, except those that belong to no person (`runner`, `ubuntu`, `postgres`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from composer_hub.records import Trace
from composer_hub.redact.data import words
from composer_hub.redact.fields import is_person_login, may_be_login
from composer_hub.redact.match import holds, line_before
from composer_hub.redact.needles import Needles
from composer_hub.redact.triggers import WordsWith

_GENERIC = frozenset(words("users of no one"))
_USER = re.compile(
    r"(?P<v>[A-Z][\w.-]{1,31}(?: [A-Z][\w.-]{1,31}){1,2}(?=[/\\])"  # `C:\Users\Grete Kaiserling\src`
    r"|[A-Za-z][\w.-]{1,31}(?:~\d)?)(?=[/\\\s\"'`:;,)\]}>|%*?&!<\x1b]|\Z)"
)
_DASHED_USER = re.compile(r"(?P<v>[A-Za-z][A-Za-z0-9_.]{1,31})(?=[-/\\\s\"'`:;,)\]}>\x1b]|\Z)")
_TILDE = re.compile(r"(?:cd ~|(?<![\w/.~@^-])~(?=[\w.-]{3,32}/))([a-z][\w.-]{2,31})(?=[/\s\"'\\]|\Z)")
_HOMES = (
    *((anchor, _USER) for anchor in ("/home/", "/homes/", "/Users/", "\\Users\\", "%2FUsers%2F", "%2Fhome%2F")),
    *((anchor, _DASHED_USER) for anchor in ("-Users-", "-home-")),
)


_PATH_BEFORE = re.compile(r"[\w.@+~$:/-]*\Z")
_GREPPED = re.compile(r":\d{1,6}:")
_SOURCE_TREE = re.compile(
    r"(?:\A|/)(?:src|apps?|pages|components|containers|views|routes|router|templates|layouts|lib|public|static|assets|screens"
    r"|web|ui|api|node_modules|modules|features?|controllers|resources|frontend|tests?|docs|locales|presentation|activities)(?:/|\Z)"
)
_HOST = re.compile(r"https?://[^/]*")
_PRINTED_USER = re.compile(
    r"(?:(?:Accepted|Failed) \w+ for (?:invalid user )?|session opened for user |\n[ \t]+User |uid=\d{3,6}\(|\[sudo\] password for |\b(?:whoami|id -un)(?:\r?\n|\\{1,8}n)"  # noqa: E501
    r"|\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=|\buid=(?=[\w.-]+,\s?(?:ou|cn|dc)=))"
    r"(?P<v>[A-Za-z][\w.-]{1,31})(?=[):,\s\"'\\]|\Z)"
)
_DOMAIN_USER = re.compile(r"\\{1,4}(?P<v>[a-z][a-z0-9]*(?:[._-][a-z0-9]+)?)(?![\w\\/.(*?|-])")
"""`CORP\\dvlasova`: a user of a domain, whose name is before it."""
_DOMAIN = re.compile(r"(?<![\w\\/.:-])(?!HK[A-Z]{2}|NT |BUILTIN|[A-Z]:)[A-Z][A-Z0-9-]{1,14}\Z")
_SIGNS = r"/\\:=@\"'`,;()\[\]<>{}"
_DOTTED = re.compile(rf"(?<![^{_SIGNS}])[a-z]{{2,20}}\.[a-z]{{2,24}}(?:-[a-z]{{2,20}})?(?=\.*(?:[{_SIGNS}]|\Z))")
"""What is between the signs of a word, without the periods of a sentence."""
_BEFORE_LOGIN = frozenset(
    (
        "-u",
        "-U",
        "-l",
        "--user",
        "--username",
        "--login",
        "--owner",
        "--assignee",
        "--reviewer",
        "--author",
        "user",
        "username",
        "login",
        "owner",
        "assignee",
        "by",
        "as",
        "of",
        "from",
        "to",
        "for",
        "account",
        "uid",
        "name",
        "author",
    )
)
_REACHED = re.compile(
    r"(?<![\w.-])(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)[ \t](?:[^\s\"'`|;&]{1,80}[ \t]){0,6}?"
    r"(?P<v>[A-Za-z][\w.-]{1,31})@[\w-]+(?:\.[\w-]+)*(?=[:\s\"'`\\]|\Z)"
)
_LISTED = re.compile(
    r"(?:\A|\n|\\n)[ \t]*(?:\d+\s+)?[dlcbps-](?:[r-][w-][xsStT-]){3}[+@.]?\s+\d+\s+"
    r"(?P<v>[A-Za-z][\w.-]{1,31})\s+[\w.-]+\s+\d"
)
_LOGGED_IN = re.compile(r"(?:\A|\n|\\n)(?P<v>[a-z][\w.-]{1,31})[ \t]+(?:pts/\d+|tty\w+|console|:\d)[ \t]+(?=\S)")
_LOGGED_IN_AS = re.compile(r"ogged in as:? [\"'`]?@?([A-Za-z][\w.-]{3,31})(?<![.-])(?![\w@/\\])")
_MENTION = re.compile(r" @(?P<v>[A-Za-z][\w-]{3,31})(?![\w/@.(-])")
_PATTERN = re.compile(r"[ \t]*(?=\S*\w)(?=\S*[/*])[\w./*-]+(?:[ \t]+@?[\w./@-]+)*[ \t]*\Z")
"""Paths, and perhaps other owners, before the owner of a folder."""
_GREETING = re.compile(r"(?i)(?:\bcc|\bping|\bthanks|\bhey|\bhi|reviewers?:|author:|assignees?:|owner:),?\Z")
_PRINTING = (
    "Accepted ",
    "Failed ",
    "session opened",
    " User ",
    "\tUser ",
    "uid=",
    "USER",
    "LOGNAME",
    "[sudo]",
    "whoami",
    "id -un",
)
_PRINTED = (
    *("Accepted ", "Failed ", "session opened for user ", "\n  User ", "\n    User ", "\n\tUser "),
    *("uid=", "USER=", "USERNAME=", "LOGNAME=", "[sudo] password for "),
    *(command + end for command in ("whoami", "id -un") for end in "\n\r\\"),
)
_MODES = ("rw-", "rwx", "r-x", "r--", "rws", "rwS")
_TERMINALS = ("pts/", "tty", "console")
_ON_TERMINAL = tuple(gap + name for gap in " \t" for name in (*_TERMINALS, ":0", ":1"))
_REACHING = ("ssh ", "ssh-copy-id ", "scp ", "sftp ", "rsync ", "mosh ")
_PROMPT = re.compile(r"@[\w.-]{1,60}(?:[ :][~/][^\n$%#@]{0,80}| [\w.-]{1,60}\])[$%#](?=\s|\Z)")
_USER_OF_PROMPT = re.compile(r"(?:\A|[\n\[\t\"']|\\n|\) |> )(?P<v>[a-z][\w.-]{1,31})\Z")


def user_names(text: str) -> Iterator[str]:
    """Yield the user names that home folders, prompts, commands and the environment in a text reveal."""
    return (name for name in _names(text) if not is_generic(name))


_COMMAND = re.compile(
    r"(?:\A|\n|[;&|(`]|\$\()[ \t]*(?:sudo |npx |uvx |exec |time |nohup )?([a-z][a-z0-9._-]{1,31})(?=\s|\Z)"
)
_INSTALLED = re.compile(
    r"(?:/(?:s?bin|share|lib|libexec|opt|node_modules|site-packages|etc|dist-packages)/|/\.|(?:import|from|require\(['\"]"
    r"|(?:install|add|which|man|command -v|brew|-m)) )\Z"
)
_PART_ENDS = re.compile(r"[/\s\"';:)]|\Z")


def people_among(users: Collection[str], trace: Trace, texts: Iterable[str]) -> set[str]:
    """Return the user names (in lower case) that are not also a command, a package or a folder of programs."""
    if not users:
        return set()
    people = set(users)
    for message in trace.messages:
        for call in message.tool_calls:
            for value in call.arguments.values() if isinstance(call.arguments, Mapping) else ():
                if isinstance(value, str):
                    people.difference_update(_COMMAND.findall(value[:20_000].lower()))
    needles = Needles(people)
    for text in texts:
        lowered = text.lower()
        for at, name in needles.find(lowered):
            if _INSTALLED.search(lowered, max(0, at - 24), at) and _PART_ENDS.match(lowered, at + len(name)):
                people.discard(name)
    return people


def _names(text: str) -> Iterator[str]:
    """Yield the user names in a text, also those that belong to no person."""
    for first, second, names_in in _WAYS:
        if holds(text, first) and holds(text, second):
            yield from names_in(text)


def _of_domains(text: str) -> Iterator[str]:
    """Yield the users of a domain: `CORP\\dvlasova`."""
    for user in _DOMAIN_USER.finditer(text):
        name, start = user["v"], user.start()
        if len(name) >= 5 and _DOMAIN.search(text, max(0, start - 16), start) and ("." in name or may_be_login(name)):
            yield name


def _logged_in(text: str) -> Iterator[str]:
    """Yield the people of whom a tool prints that they are logged in: `Logged in as dvlasova`."""
    return filter(_is_named, _LOGGED_IN_AS.findall(text))


def _at_prompts(text: str) -> Iterator[str]:
    """Yield the users of prompts: `dvlasova@web-1:~$`."""
    for prompt in _PROMPT.finditer(text):
        if before := _USER_OF_PROMPT.search(text[max(0, prompt.start() - 34) : prompt.start()]):
            yield before["v"]


def _of_homes(text: str) -> Iterator[str]:
    """Yield the owners of home folders: `/home/dvlasova/src`."""
    for anchor, pattern in _HOMES:
        at = text.find(anchor)
        while at >= 0:
            rooted = anchor[0] != "/" or _is_rooted(text[max(0, at - 80) : at])
            at += len(anchor)
            while text[at : at + 1] == "\\":  # JSON in JSON doubles them
                at += 1
            if rooted and (match := pattern.match(text, at)):
                name = match["v"].rstrip(".")
                yield from dict.fromkeys((name, name.partition(" ")[0]))
            at = text.find(anchor, at)


def _is_named(login: str) -> bool:
    """Return whether a login that something names as a user is a person's, not a service's."""
    parts = re.split(r"[._-]", login.lower())
    return is_person_login(login) or (len(login) >= 5 and all(len(part) == 1 or may_be_login(part) for part in parts))


def _mentioned(text: str) -> Iterator[str]:
    """Yield who is greeted or asked by a sign, and who owns a folder."""
    for mention in _MENTION.finditer(text):
        line = line_before(text, mention.start(), 160)
        if (_GREETING.search(line) or _PATTERN.match(line)) and _is_named(mention["v"]):
            yield mention["v"]


def _dotted(text: str) -> Iterator[str]:
    """Yield the logins of the form `anna.krause` in a path, or after a sign or word that announces them."""
    if not _WITH_DOTTED.of(text):
        return
    words = text.split()
    for at in [at for at, word in enumerate(words) if "." in word]:
        word = words[at]
        if names := _dotted_in(word):
            before = words[at - 1] if at else ""
            alone = word.strip(".,;:)\"'`") == names[0]
            if not alone or before.rstrip(":=").strip("\"'`").lower() in _BEFORE_LOGIN or before in _BEFORE_LOGIN:
                yield from names


def _dotted_in(word: str) -> tuple[str, ...]:
    if len(word) > 120 or "." not in word or "://" in word or "(" in word:
        return ()
    return tuple(filter(is_person_login, _DOTTED.findall(word)))


_WITH_DOTTED = WordsWith(_dotted_in, lambda text: {word for word in text.split() if "." in word})


_ANY = ("",)
_WAYS: tuple[tuple[tuple[str, ...], tuple[str, ...], Callable[[str], Iterable[str]]], ...] = (
    (("~",), _ANY, _TILDE.findall),
    ((".",), _ANY, _dotted),
    # The second question of each pair holds less often, but takes longer.
    (_PRINTING, _PRINTED, _PRINTED_USER.findall),
    (("\\",), ("user", "User"), _of_domains),
    (("rw", "r-x"), _MODES, _LISTED.findall),
    (_TERMINALS, _ON_TERMINAL, _LOGGED_IN.findall),
    (("ogged in as",), _ANY, _logged_in),
    ((" @",), _ANY, _mentioned),
    (("@",), _REACHING, _REACHED.findall),
    (("@",), ("~", "]$", "]#"), _at_prompts),
    (("home", "Users"), _ANY, _of_homes),
)
"""Two groups of words, of each of which a text must contain one before names are looked for, and what finds them."""


def _is_rooted(before: str) -> bool:
    """Return whether this is the folder of homes, unlike `src/home/` and `https://x.io/home/`."""
    match = _PATH_BEFORE.search(before)
    path = _GREPPED.split(match[0])[-1] if match else ""
    return not _HOST.fullmatch(path) and not _SOURCE_TREE.search(path)


def is_generic(name: str) -> bool:
    """Return whether a user name belongs to no person."""
    return name.lower() in _GENERIC or name.lower().startswith(("user", "your", "example", "some"))
