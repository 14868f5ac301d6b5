"""Secrets that a command takes as an argument, is piped, or prints.

In: a text and the words it holds. Out: spans of values with the rule that found them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set

from composer_hub.redact.entropy import is_dummy, looks_random
from composer_hub.redact.named import MAX_JUDGED, PLACEHOLDER, TRIVIAL, Span, scanned
from composer_hub.redact.phrases import looks_like_password

MAX_LINE = 800
"""Characters of a command line that are looked at."""

# Where a command takes a secret, behind its name. A space is white space, `[= ]` either, `@` any one argument, and `~`
# the value, quoted or not.
ARGUMENTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # Databases and queues.
    ("mysql mysqldump mysqladmin mysqlimport mysqlsh mariadb mycli", (r" -p~",)),
    ("mongo mongosh mongodump mongorestore mongoexport mongoimport cqlsh", (r" (?:-p|--password)[= ]~",)),
    ("redis-cli keydb-cli valkey-cli", (r" (?:-a|--pass)[= ]~",)),
    ("sqlcmd bcp osql isql tsql ipmitool mosquitto_pub mosquitto_sub snowsql", (r" -P ?~",)),
    ("rabbitmqctl", (r"\b(?:add_user|change_password|authenticate_user) @ ~",)),
    ("erl iex elixir", (r" -{1,2}(?:set)?cookie ~",)),
    ("snmpwalk snmpget snmpset snmpbulkwalk snmptrap", (r" -[AX] ~",)),
    ("etcdctl", (r" --user[= ][^\s:]{1,60}:~",)),
    ("ldapsearch ldapadd ldapmodify ldapwhoami ldapdelete ldappasswd", (r" -[wsa] ?~",)),
    # Registries and package hosts.
    ("docker podman nerdctl buildah helm oras crane skopeo", (r"\blogin\b.*? (?:-p|--password)[= ]~",)),
    ("skopeo crane buildah podman", (r" --(?:src-|dest-)?creds[= ][^\s:]{1,100}:~",)),
    ("twine expo", (r" -p ~",)),
    ("cf oc ibmcloud", (r"\blogin\b.*? -p ~",)),
    ("cargo", (r"\blogin ~",)),
    ("nuget", (r"\bsetapikey ~",)),
    ("poetry", (r"\bhttp-basic\.[^\s]+ @ ~", r"\bpypi-token\.[^\s]+ ~")),
    ("composer", (r"\bhttp-basic\.[^\s]+ @ ~", r"\b(?:gitlab-token|github-oauth|bearer)\.[^\s]+ ~")),
    ("bundle", (r"\bconfig (?:set )?\S+ [^\s:/]{1,60}:~",)),
    # Clouds and vaults.
    ("az", (r"\blogin\b.*? -p ~", r"\bkeyvault secret set\b.*? --value[= ]~")),
    ("aws", (r"\bset aws_(?:secret_access_key|session_token) ~", r" --secret-string[= ]~")),
    ("aws", (r"\bput-parameter\b(?=.*SecureString).*? --value[= ]~",)),
    ("vault bao", (r"\blogin ~", r"\b(?:kv put|kv patch|write)\b.*? [\w.-]{1,60}=~")),
    ("gh", (r"\bsecret set\b.*? (?:-b|--body)(?:[= ])?~",)),
    ("ngrok wandb", (r"\b(?:login|authtoken|add-authtoken) ~",)),
    ("mc", (r"\b(?:alias set|config host add) @ @ @ ~",)),
    ("rclone", (r" (?:pass|password|obscure|secret_access_key|client_secret)[= ]~",)),
    ("doctl", (r"\binit\b.*? -t ~",)),
    ("ansible-vault", (r"\bencrypt_string ~",)),
    # Logging in to machines.
    ("security", (r"\badd-(?:generic|internet)-password\b.*? -w ~",)),
    ("sshpass", (r" -p ?~",)),
    ("plink pscp psftp", (r" -pw ~",)),
    ("ssh-keygen", (r" -[NP] ~",)),
    ("smbclient rpcclient smbmap smbget", (r" (?:-U|--user)[= ](?:\\?['\"])?[^\s%'\"]{1,80}%~",)),
    ("crackmapexec netexec nxc evil-winrm hydra kerbrute rdesktop winrs psexec", (r" (?:-p|--password)[= :] ?~",)),
    ("xfreerdp wfreerdp", (r" /p:~",)),
    ("net", (r"\buser @ ~", r"\buse .*?\\\\[^\s]+ ~", r"\buse .*?/user:[^\s]+ ~")),
    ("cmdkey", (r"/pass:~",)),
    ("lftp", (r" -u [^\s,]{1,64},~",)),
    ("htpasswd", (r" -[a-zA-Z]*n[a-zA-Z]* @ ~", r" -(?![a-zA-Z]*n)[a-zA-Z]*b[a-zA-Z]* @ @ ~")),
    ("useradd usermod", (r" -p ~",)),
    ("wpa_passphrase", (r" @ ~",)),
    ("nmcli", (r" (?:password|wifi-sec\.psk) ~",)),
    ("sudo su passwd kinit docker podman helm gh cryptsetup wrangler gcloud", (r" ?<<< ?~",)),
    ("oathtool", (r" (?:-b|--base32)(?:[= ]-\S+)*[= ]~",)),
    # Files under a password.
    ("openssl", (r" -pass(?:in|out)? (?:\\?['\"])?pass:~", r" -(?:k|K|passwd) ~")),
    ("keytool jarsigner apksigner", (r" -{1,2}[a-z-]*pass (?:pass:)?~",)),
    ("zip unzip", (r" -P ?~",)),
    ("7z 7za 7zz rar unrar", (r" -p~",)),
    # The web.
    ("curl", (r" (?:-u ?|-U ?|--user[= ]|--proxy-user[= ])(?:\\?['\"])?[^\s:\"']{0,100}:~", r" --oauth2-bearer ~")),
    ("curl", (r" (?:-b ?|--cookie[= ])(?:\\?['\"])?[^\s=;\"']{1,60}=(?P<cookie>~)",)),
    ("http https xh", (r" (?:-a|--auth)[= ](?:\\?['\"])?[^\s:\"']{1,100}:~",)),
)
_QUOTED = r"(?P<q>\\{0,3}[\"'])(?P<quoted>(?:(?!(?P=q))[^\n]){3,512})(?P=q)"
_BARE = r"(?P<bare>[^\s\"'`\\|<>()]{4,512})"
_ANY = r"(?:\\?[\"'])?[^\s\"']{1,200}(?:\\?[\"'])?"


def _compiled(argument: str) -> re.Pattern[str]:
    spaced = argument.replace("[= ]", r"(?:=|\s+)").replace("[= :]", r"(?:[=:]|\s+)")
    spaced = spaced.replace(" ?", r"\s*").replace(" ", r"\s+").replace("@", _ANY)
    return re.compile(spaced.replace("~", f"(?:{_QUOTED}|{_BARE})"), re.DOTALL)


def _by_command() -> dict[str, tuple[re.Pattern[str], ...]]:
    found: dict[str, list[re.Pattern[str]]] = {}
    for commands, arguments in ARGUMENTS:
        for command in commands.split():
            found.setdefault(command, []).extend(_compiled(argument) for argument in arguments)
    return {command: tuple(patterns) for command, patterns in found.items()}


_BY_COMMAND = _by_command()
_WORD_OF = {command: command.replace("-", "_").strip("0123456789") for command in _BY_COMMAND}
_PIPED = re.compile(
    r"(?:echo|printf|yes)\s+(?:-[neE]+\s+)?(?:\\?[\"']%s(?:\\\\?n)?\\?[\"']\s+)?"
    r"(?:\\{0,3}[\"'])?(?:(?P<user>[\w.-]{1,40}):)?(?P<v>[^\s\"'$`\\|:]{6,256})(?:\\{1,2}n)?(?:\\{0,3}[\"'])?\s*\|[^\n|]{0,80}?"
    r"(?:stdin|with-token|chpasswd|sudo -S|\bsu\b|\bpasswd\b|kinit|cryptsetup|luks|secrets? |passphrase-fd|pass insert)"
)
_PRINTS = (
    *("op read", "pass show", "find-generic-password", "gcloud auth print-", "gh auth token", "secret-tool lookup"),
    *("get-login-password", "get-access-token", "vault kv get", "vault read", "vault print", "get-parameter"),
    *(
        "get-secret-value",
        "heroku config:get",
        "secrets get",
        "secret get",
        "secret show",
        "secrets access",
        "versions access",
    ),
    *(
        "openssl rand",
        "pwgen",
        "wg genkey",
        "| base64 -d",
        "| base64 -D",
        "|base64 -d",
        "echo $",
        'echo "$',
        "printenv ",
    ),
    *("terraform output", "tofu output", "cat "),
)
"""Commands that print a secret, as far as it takes to tell them."""
_PRINTS_NAMED = re.compile(r"\{?[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|_PASS)\b")
_SECRET_FILE = re.compile(
    r"[^\n|]{0,120}(?:secret|token|passw|api_?key|credential|master\.key|\.pass\b)[^\n|]{0,60}(?=\n)"
)
_PRINTED = re.compile(
    r"[^\n]{0,200}(?:\n[ \t]*(?:\d+[\t:→|-][ \t]?)?[+>]?[ \t]*|\\n\s{0,8})"
    r"(?P<v>[^\s\"'`\\]{8,512})(?=[ \t]*(?:\n|\\n|\Z))"
)
_NEEDED = {"echo": _PRINTS_NAMED, "printenv": _PRINTS_NAMED, "cat": _SECRET_FILE}
_PRINT_WORDS = {anchor: re.findall(r"[a-z][a-z-]*", anchor)[0].replace("-", "_").strip("_") for anchor in _PRINTS}
_PIPE_WORDS = frozenset(("echo", "printf", "yes"))

COMMAND_WORDS = (*_WORD_OF.values(), *_PRINT_WORDS.values(), *_PIPE_WORDS)
"""The words by which a text that may hold a command is told; each stands whole."""


def command_spans(text: str, words: Set[str]) -> Iterator[Span]:
    """Yield the secrets that commands are given, and those that they print."""
    for command, patterns in _BY_COMMAND.items():
        if _WORD_OF[command] in words:
            for at in _places(text, command):
                yield from _arguments(text, at + len(command), patterns)
    if "|" in text and not words.isdisjoint(_PIPE_WORDS):
        yield from scanned(text, _PIPED, "piped", _is_given)
    for anchor, word in _PRINT_WORDS.items():
        if word in words:
            yield from _printed(text, anchor)


def _printed(text: str, anchor: str) -> Iterator[Span]:
    at = text.find(anchor)
    while at >= 0:
        end = at + len(anchor)
        needed = _NEEDED.get(anchor.partition(" ")[0])
        named = not needed or needed.match(text, end)
        if named and (found := _PRINTED.match(text, end)) and _is_printed(found["v"][:MAX_JUDGED]):
            yield *found.span("v"), "SECRET", "printed"
        at = text.find(anchor, end)


def _places(text: str, command: str) -> Iterator[int]:
    """Yield where the command's name begins a word and white space follows."""
    at = text.find(command)
    while at >= 0:
        end = at + len(command)
        before = text[at - 1 : at]
        if text[end : end + 1] in (" ", "\t") and (
            not (before.isalnum() or before in ("-", "_", ".")) or text[max(0, at - 2) : at] in ("\\n", "\\t")
        ):
            yield at
        at = text.find(command, end)


def _arguments(text: str, begin: int, patterns: tuple[re.Pattern[str], ...]) -> Iterator[Span]:
    end = _line_end(text, begin)
    for pattern in patterns:
        at = begin
        while found := pattern.search(text, at, end):
            group = "quoted" if found["quoted"] is not None else "bare"
            accept = _is_cookie if "cookie" in pattern.groupindex else _is_given
            if not PLACEHOLDER.search(found[group]) and accept(found[group][:MAX_JUDGED]):
                yield *found.span(group), "SECRET", "command"
            at = found.end()


def _line_end(text: str, begin: int) -> int:
    r"""Return where the command ends: at a line end that no `\` leads over."""
    end = text.find("\n", begin)
    while 0 <= end - begin < MAX_LINE and text[end - 1] == "\\":
        end = text.find("\n", end + 1)
    return min(end if end >= 0 else len(text), begin + MAX_LINE)


def _is_given(value: str) -> bool:
    """Tell a secret from a variable, a path, another flag or a word."""
    if value.startswith(("$", "<", "-", "/", "{", "@", "%", "./", "~", "*")) or value.lower() in TRIVIAL:
        return False
    return not is_dummy(value) and not (value.isalpha() and value.islower() and len(value) < 12)


def _is_cookie(value: str) -> bool:
    return looks_random(value)


def _is_printed(value: str) -> bool:
    return looks_random(value) or looks_like_password(value)
