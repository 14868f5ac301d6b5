"""User names in a text: what home folders, prompts and the environment give away.

In: a text. Out: names, but not those of nobody (`runner`, `ubuntu`, `postgres`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
        "postgres",
        "mysql",
        "redis",
        "nginx",
        "apache",
        "mongodb",
        "elasticsearch",
        "rabbitmq",
        "grafana",
        "prometheus",
        "ftp",
        "mail",
        "sshd",
        "systemd",
        "bin",
        "sys",
        "games",
        "proxy",
        "backup",
        "deploy",
        "svc",
        "api",
        "web",
        "db",
        "server",
        "client",
        "steam",
        "odoo",
        "django",
        "airflow",
        "spark",
        "hadoop",
        "kafka",
        "tomcat",
        "gitlab-runner",
        "actions",
        "github",
        "site",
        "vsts",
        "cloud-user",
        "cloudshell-user",
        "centos",
        "fedora",
        "alpine",
        "arch",
        "kali",
        "rocky",
        "bitnami",
        "rancher",
        "staff",
        "wheel",
        "operator",
        "service",
        "system",
        "frappe",
        "discourse",
        "minecraft",
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
_GREPPED = re.compile(r":\d{1,6}:")
_SOURCE_TREE = re.compile(
    r"(?:\A|/)(?:src|apps?|pages|components|containers|views|routes|router|templates|layouts|lib|public|static|assets|screens"
    r"|web|ui|api|node_modules|modules|features?|controllers|resources|frontend|tests?|docs|locales|presentation|activities)(?:/|\Z)"
)
_HOST = re.compile(r"https?://[^/]*")
_SAID_USER = re.compile(
    r"(?:uid=\d{3,6}\(|\[sudo\] password for |\b(?:whoami|id -un)(?:\r?\n|\\{1,8}n)"
    r"|\b(?:USER|LOGNAME|USERNAME|SUDO_USER)=)"
    r"(?P<v>[A-Za-z][\w.-]{1,31})(?=[):\s\"'\\]|\Z)"
)
_REACHED = re.compile(
    r"(?<![\w.-])(?:ssh|scp|sftp|rsync|mosh|ssh-copy-id)[ \t](?:[^\s\"'`|;&]{1,80}[ \t]){0,6}?"
    r"(?P<v>[A-Za-z][\w.-]{1,31})@[\w-]+(?:\.[\w-]+)*(?=[:\s\"'`\\]|\Z)"
)
_REACHING = ("ssh ", "ssh-copy-id ", "scp ", "sftp ", "rsync ", "mosh ")
_PROMPT = re.compile(r"@[\w.-]{1,60}(?:[ :][~/][^\n$%#@]{0,80}| [\w.-]{1,60}\])[$%#](?=\s|\Z)")
_PROMPTED = re.compile(r"(?:\A|[\n\[\t\"']|\\n|\) |> )(?P<v>[a-z][\w.-]{1,31})\Z")


def home_users(text: str) -> Iterator[str]:
    """Yield the user names that home folders, prompts and the environment in the text give away."""
    if "~" in text:
        yield from (name for name in _TILDE.findall(text) if not _is_generic(name))
    if (
        "uid=" in text
        or "USER" in text
        or "LOGNAME" in text
        or "[sudo]" in text
        or "whoami" in text
        or "id -un" in text
    ):
        yield from (name for name in _SAID_USER.findall(text) if not _is_generic(name))
    if "@" in text and any(word in text for word in _REACHING):
        yield from (name for name in _REACHED.findall(text) if not _is_generic(name))
    if "@" in text and ("~" in text or "]$" in text or "]#" in text):
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
    path = _GREPPED.split(found[0])[-1] if found else ""
    return not _HOST.fullmatch(path) and not _SOURCE_TREE.search(path)


def _is_generic(name: str) -> bool:
    return name.lower() in _GENERIC or name.lower().startswith(("user", "your", "example", "some"))
