"""Users, organizations and rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from composer_hub.local_hub.accounts import AccountsError, User, accounts_from_words, read_accounts


def test_names_may_begin_with_an_underscore() -> None:
    assert accounts_from_words(["__ci__:secret"]).user_of("secret").name == "__ci__"  # type: ignore[union-attr]


def test_a_token_names_its_user_and_no_other_word_does() -> None:
    accounts = accounts_from_words(["ada:secret", "bob:other"], ["team"])
    assert accounts.user_of("secret").name == "ada"
    assert accounts.user_of("ada") is None
    assert accounts.user_of("") is None


@pytest.mark.parametrize(("role", "reads", "creates", "writes_own", "writes_others"), [
    ("", False, False, False, False),
    ("read", True, False, False, False),
    ("contributor", True, True, True, False),
    ("write", True, True, True, True),
    ("admin", True, True, True, True),
])  # fmt: skip
def test_a_role_gives_its_rights(role: str, reads: bool, creates: bool, writes_own: bool, writes_others: bool) -> None:
    user = User("ada", roles={"team": role} if role else {})
    assert user.may_read("team") is reads
    assert user.may_create_in("team") is creates
    assert user.may_write("team", "ada") is writes_own
    assert user.may_write("team", "bob") is writes_others


def test_a_read_only_token_writes_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "users.yaml"
    path.write_text("users: [{name: ada, token: w, read_token: r}]")
    reader = read_accounts(path).user_of("r")
    assert reader.may_read("ada")
    assert not reader.may_write("ada", "ada")


@pytest.mark.parametrize("text", [
    "", "[]", "users: 1", "users: [1]", "users: [{name: ada}]", "users: [{name: ada, token: t}, {name: ada, token: u}]",
    "users: [{name: ada, token: t}, {name: bob, token: t}]", "users: [{name: api, token: t}]",
    "users: [{name: a/b, token: t}]", "users: [{name: ada, token: t, orgs: {team: admin}}]",
    "orgs: [{name: team}]\nusers: [{name: ada, token: t, orgs: {team: king}}]", "users: [{",
])  # fmt: skip
def test_a_users_file_that_cannot_be_used_is_refused_without_showing_a_token(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users.yaml"
    path.write_text(text.replace("token: t", "token: hf_secret"))
    with pytest.raises(AccountsError) as error:
        read_accounts(path)
    assert "hf_secret" not in str(error.value)


def test_a_user_option_without_a_token_is_refused() -> None:
    with pytest.raises(AccountsError):
        accounts_from_words(["ada"])
