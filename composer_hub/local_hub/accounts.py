"""Users with tokens and organizations with roles on the embedded Hub, read from a file or from options.

In: a users file (YAML or JSON) or `name:token` words. Out: `Accounts`, which knows a token's user and their rights.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from composer_hub.local_hub.errors import LocalHubUsageError

ROLES = ("read", "contributor", "write", "admin")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?")
RESERVED = ("api", "datasets", "spaces", "models", "kernels", "buckets", "jobs", "settings", "organizations")


class AccountsError(LocalHubUsageError):
    """The users file or a `--user` option cannot be used."""


@dataclass(frozen=True, slots=True)
class Organization:
    """A namespace that several users share."""

    name: str
    fullname: str = ""
    private_by_default: bool = False


@dataclass(frozen=True, slots=True)
class User:
    """One person; `can_write` is False for a read-only token."""

    name: str
    fullname: str = ""
    email: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    can_write: bool = True

    def role_in(self, namespace: str) -> str:
        """Return the role in a namespace: admin in the user's, a role in an organization, or an empty text."""
        return "admin" if namespace == self.name else self.roles.get(namespace, "")

    def may_create_in(self, namespace: str) -> bool:
        return self.can_write and self.role_in(namespace) in ("contributor", "write", "admin")

    def may_write(self, namespace: str, created_by: str) -> bool:
        """Return whether this user may change a repo of the namespace; a contributor may change only their own."""
        role = self.role_in(namespace)
        return self.can_write and (role in ("write", "admin") or (role == "contributor" and created_by == self.name))

    def may_read(self, namespace: str) -> bool:
        """Return whether this user sees the private repos of a namespace."""
        return bool(self.role_in(namespace))


class Accounts:
    """All users and organizations. Tokens are kept as hashes, except the first, which local commands use."""

    def __init__(self, organizations: Iterable[Organization] = ()) -> None:
        self.organizations = {organization.name: organization for organization in organizations}
        self.users: dict[str, User] = {}
        self._tokens: dict[str, tuple[str, bool]] = {}
        self.first_token = ""

    def add(self, user: User, token: str, read_token: str = "") -> None:
        """Add a user with a token, and maybe a second one that only reads."""
        _check_name(user.name)
        if user.name in self.users or user.name in self.organizations:
            raise AccountsError(f"The name {user.name!r} is used twice among users and organizations. Rename one.")
        for secret, can_write in ((token, True), (read_token, False)):
            if secret and _digest(secret) in self._tokens:
                raise AccountsError(
                    f"The token of {user.name!r} already belongs to another user. Give each user a separate token."
                )
            if secret:
                self._tokens[_digest(secret)] = (user.name, can_write)
        self.users[user.name] = user
        self.first_token = self.first_token or token

    def user_of(self, token: str) -> User | None:
        """Return the user a token belongs to."""
        name, can_write = self._tokens.get(_digest(token), ("", False))
        return replace(self.users[name], can_write=can_write) if name else None

    def is_private_by_default(self, namespace: str) -> bool:
        organization = self.organizations.get(namespace)
        return organization is not None and organization.private_by_default

    def holds_namespace(self, name: str) -> bool:
        return name in self.users or name in self.organizations


def read_accounts(path: Path) -> Accounts:
    """Read a users file: `users: [{name, token, read_token?, fullname?, email?, orgs?: {name: role}}]`, `orgs`."""
    import yaml

    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AccountsError(f"{path} cannot be read as a users file ({_first_line(error)}).") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("users"), list):
        raise AccountsError(f"{path} holds no list `users`. Write `users: [{{name: ada, token: hf_…}}]`.")
    organizations = [_organization(item, path) for item in raw.get("orgs") or []]
    accounts = Accounts(organizations)
    for item in raw["users"]:
        _add_user(accounts, item, path)
    return accounts


def accounts_from_words(words: Iterable[str], organizations: Iterable[str] = ()) -> Accounts:
    """Make accounts from `name:token` words; every user is an admin of every organization named beside."""
    accounts = Accounts(Organization(_check_name(name)) for name in organizations)
    for word in words:
        name, _, token = word.partition(":")
        if not token:
            raise AccountsError(f"--user {name}: the token is missing. Write --user name:token.")
        accounts.add(User(name, fullname=name, roles=dict.fromkeys(accounts.organizations, "admin")), token)
    return accounts


def _organization(item: Any, path: Path) -> Organization:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise AccountsError(f"{path}: an entry of `orgs` has no `name`. Write `orgs: [{{name: team}}]`.")
    return Organization(
        _check_name(item["name"]),
        str(item.get("fullname") or item["name"]),
        bool(item.get("private_by_default", False)),
    )


def _add_user(accounts: Accounts, item: Any, path: Path) -> None:
    if not isinstance(item, dict) or not all(isinstance(item.get(key), str) for key in ("name", "token")):
        raise AccountsError(f"{path}: a user needs `name` and `token`, both texts.")
    roles = item.get("orgs") or {}
    if not isinstance(roles, dict) or not all(
        name in accounts.organizations and role in ROLES for name, role in roles.items()
    ):
        raise AccountsError(
            f"{path}: `orgs` of user {item['name']!r} must map organizations of this file to one of {', '.join(ROLES)}."
        )
    user = User(item["name"], str(item.get("fullname") or item["name"]), str(item.get("email") or ""), roles)
    accounts.add(user, item["token"], str(item.get("read_token") or ""))


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in RESERVED:
        raise AccountsError(
            f"{name!r} cannot be a namespace: use letters, digits, '-', '_' and '.', and no reserved word."
        )
    return name


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
