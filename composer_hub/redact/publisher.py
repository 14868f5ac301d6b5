"""The publisher: values of this machine and its user, which are replaced wherever they occur.

In: the environment, the home folder, git's configuration, the host name. Out: a `Publisher` for `Redactor`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from composer_hub.redact.data import words

_USERS_OF_NO_ONE = frozenset(words("users of no one"))
_HOSTS_OF_NO_ONE = frozenset(("localhost", "localhost.localdomain", "debian", "ubuntu", "fedora", "raspberrypi"))
MIN_HOST = 4


@dataclass(frozen=True)
class Publisher:
    """The identity of the person who publishes."""

    users: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()

    def values(self) -> Iterator[tuple[str, str]]:
        """Yield the label and the text of everything but user names, which are searched as words."""
        yield from (("NAME", name) for name in self.names)
        yield from (("EMAIL", email) for email in self.emails)
        yield from (("HOST", host) for host in self.hosts)


NO_ONE = Publisher()


def this_publisher(variables: Mapping[str, str], home: Path) -> Publisher:
    """Return the identity that this machine gives away; names that machines share (root, runner) are not in it."""
    users = {variables.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")} | {home.name}
    host = socket.gethostname()
    hosts = {host, host.partition(".")[0]}
    return Publisher(
        users=tuple(sorted(user for user in users if len(user) > 1 and user.lower() not in _USERS_OF_NO_ONE)),
        names=tuple(sorted(name for name in _git("user.name", variables) if " " in name)),
        emails=tuple(sorted(email for email in _git("user.email", variables) if "@" in email)),
        hosts=tuple(sorted(host for host in hosts if len(host) >= MIN_HOST and host.lower() not in _HOSTS_OF_NO_ONE)),
    )


def _git(key: str, variables: Mapping[str, str]) -> set[str]:
    """Return the values of a git setting, from all its files and from the environment."""
    names = [f"GIT_{who}_{key.removeprefix('user.').upper()}" for who in ("AUTHOR", "COMMITTER")]
    values = {variables[name] for name in names if name in variables}
    try:
        run = subprocess.run(
            ["git", "config", "--get-all", key], capture_output=True, text=True, timeout=10, check=False,
            env={**os.environ, **variables},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return values
    return values | set(run.stdout.splitlines())
