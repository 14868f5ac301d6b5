"""A value that is a path, code or a sentence stays, whatever a finder thinks of its surroundings."""

from __future__ import annotations

import pytest

from composer_hub.records import Message, ToolCall, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.judge import is_private, what_is
from composer_hub.redact.kinds import KINDS
from composer_hub.redact.trace import map_strings

HEX = "4f9d2c81aa07e3b5cc6d1e2f3a4b5c6d7e8f9a0b"
# Values of each kind, and values that look like one and are secrets.
EXAMPLES = {
    "digest": (("h1:bqBk3QOWi1qPPnjTvrYaFuBm", f"Linux-node-{HEX}"), ("Ha5h:bqBk3QOWi1qP",)),
    "public key": (("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5", "0x1f"), ("0xK9vQ2m!t",)),
    "id": (("ABC-123", "DC_kwDONvxy6M4BDPeZ"), ("Abc-123!",)),
    "quantity": (("120ms", "2024-06-01T10:00", "\x1b[0;32mok", "12 files"), ("12Qv!80mx",)),
    "version": (("v1.2.3-rc.1", "node-v20.1", "^1.7.0-rc.5", "v2.2.1@29824e69f5"), ("v1.Kq9x!",)),
    "address": (("ann@build.example.org", "cache.internal.dev"), ("ann@Kq9x!",)),
    "path": (("src/auth/password.py", "C:\\Users", "download_sftp.sh"), ("Kq9/x2Vm/t8!",)),
    "path of a project": (
        ("src/routes/invite.$token.tsx", "node_modules/.pnpm/better-auth@*/dist", "~/.config/vp"),
        ("Qm9@vK2x8ZtR4pLw7sYn/bA.tx", "~/Qm9vK2x8ZtR4pLw7sYn"),
    ),
    "route": (("/change-email", "POST /v1/auth", "/users/:id"), ("/Kq9xVm2t/8bZ", "/k3q9xz7vm2t8bwp4rjd6")),
    "flag": (("--with-token", "Ctrl+Shift+P"), ("--Kq9x!",)),
    "assignment": (("TOKEN=$1", "key=my_value"), ("token=Kq9x!",)),
    "attribute": (("minLength={8", "eyebrow="), ("bXktc2VjcmV0LXZhbHVl=", "eyebrow9!=")),
    "type": (("Uint8Array", "[token]", "CheckFn<Options>;"), ("Uint8!Kq9x",)),
    "expression": (
        ("!hasActiveMapping", "{error", "!user.isActive)", "}).optional("),
        ("!Kq9xVm2t", "!brunnen7kresse"),
    ),
    "markup": (("Hashing**", "Reset](#on-password-reset)", "now>2026-07-15T11:22:41</now"), ("Vm2t9**",)),
    "pattern": (("605|and", "from_pkcs1_pem|\u2026|fn"), ("Kq9x|Vm2t!",)),
    "algorithm": (("pbkdf2-sha256", "aes_256_gcm"), ("sha!Kq9x256",)),
}


def test_each_kind_has_examples() -> None:
    assert EXAMPLES.keys() == {kind.name for kind in KINDS}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_value_is_what_its_notation_says(kind: str) -> None:
    ordinary, secret = EXAMPLES[kind]
    assert [what_is(value) for value in ordinary] == [kind] * len(ordinary)
    assert [value for value in ordinary if is_private(value)] == []
    assert [value for value in secret if not is_private(value)] == []


def test_a_word_before_the_rest_of_a_sentence_is_judged_by_itself() -> None:
    assert what_is("v0.11.0\uc5d0\uc11c") == what_is("IdToken\u306b\u542b\u3081\u308b") == "sentence"
    assert is_private("Kq9x!Vm2t\uc5d0\uc11c")


def test_only_the_surroundings_tell_a_pin_from_a_number() -> None:
    assert all(map(is_private, ("4821", "482 193")))


# ------------------------------------------------------------------------------------------------------- whole sessions

TOKEN = "ghp_" + "k3Qz9XvT7mW2pLr8YbN4sJd6HfGc1Va5RtEo"
# A call and its result as each of many harnesses shows them, and the secrets among them: the verdict of a person.
SESSIONS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "a form in JSX": (
        "cat src/routes/reset-password.tsx",
        '12→  <PasswordInput name="password" minLength={8} autoComplete="new-password" />\n'
        '13→  <AuthLayout eyebrow="Reset" title="Password" error={error} />\n'
        "14→  const password = minLength={8};\n",
        (),
    ),
    "routes of a server": (
        "rg -n 'password|token' packages/api",
        "packages/api/auth.ts:9:  token: POST /v1/auth\npackages/api/auth.ts:10:  revoke_token: DELETE /v1/auth\n"
        'packages/api/auth.ts:12:  forgotPassword: "/change-email",\npackages/api/auth.ts:13:  password: /firefox\n',
        (),
    ),
    "what a commit changed": (
        "git show --stat HEAD",
        " src/routes/reset-password.$token.tsx | 52 +-\n src/routes/invite.$token.tsx         |  2 +-\n"
        " src/routes/api.$.ts                  |  4 +-\n",
        (),
    ),
    "conditions": (
        "sed -n 1,9p mapping.ts",
        "const needsPassword = !hasActiveMapping\nif (password || !user.isActive) return\npassword=!hasActiveMapping\n",
        (),
    ),
    "patterns": (
        "rg -n 'login|credential'",
        'login("605|and", credential)\ncredential("from_pkcs1_pem|\u2026|fn")\n',
        (),
    ),
    "a manifest to fill in": (
        "cat k8s/secret.yaml",
        "apiVersion: v1\nkind: Secret\nstringData:\n  token: REPLACE_ME\n",
        (),
    ),
    "sentences of other languages": (
        "",
        "token_savings.py\ub294 token: v0.11.0\uc5d0\uc11c \uc2dc\uc791\n"
        "password: IdToken\u306b\u542b\u3081\u308b\u65b9\u6cd5\u306f\uff1f\n",
        (),
    ),
    "colors of a terminal": ("npm test", "\x1b[0;32mpassword:\x1b[0m \x1b[1;33mok\x1b[0m\n", ()),
    "a diff with a token": ("git diff", f'-  token = ""\n+  token = "{TOKEN}"\n', (TOKEN,)),
    "settings": (
        "cat .env",
        "DB_HOST=db.internal.dev\nDB_PASSWORD=Kq9x!Vm2t\nRESET_PATH=/reset-password\nTOKEN_URL=/v1/auth\n",
        ("Kq9x!Vm2t",),
    ),
    "a form that is filled in": (
        "await page.fill('#password', 'Vm2t!Kq9x'); await page.goto('/change-password')",
        "ok",
        ("Vm2t!Kq9x",),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("command", "output", "secrets"), SESSIONS.values(), ids=SESSIONS)
def test_a_session_loses_its_secrets_and_nothing_else(command: str, output: str, secrets: tuple[str, ...]) -> None:
    call = ToolCall("Bash", {"command": command}, "c1")
    trace = Trace("t", "x", "s", (Message("assistant", "", (call,)), Message("tool", output, tool_call_id="c1")), ())
    redactor = Redactor(b"salt")
    expected = trace
    for secret in secrets:
        placeholder = redactor.placeholder("SECRET", secret)
        expected = map_strings(expected, lambda text, old=secret, new=placeholder: text.replace(old, new))
    assert redactor.trace(trace).messages == expected.messages


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("PASSWORD=changeme,password=Xk29fjQ2mvR7\n", "Xk29fjQ2mvR7"),
        ("Cookie: user=test-user@example.com&sig=Kq93xVm2tQp7zLW40sTgRb81YcN", "Kq93xVm2tQp7zLW40sTgRb81YcN"),
        (
            "kind: Secret\nstringData:\n  dsn: Server=db.example.com;User=svc;Pin=Kq9xVm2tQp7z;Timeout=3\n",
            "Kq9xVm2tQp7z",
        ),
        ('SECRET_KEY = "q%8$<aV)z7!R(mK3&x*0Tg^W@p5#sLd=Y2{bN+eH9?cF1~uJ6"', "cF1~uJ6"),
        ("The door pin is 121212.", "121212"),
    ],
)
def test_what_marks_a_dummy_uncovers_no_secret_beside_it(text: str, value: str) -> None:
    assert value not in Redactor(b"salt").text(text)


@pytest.mark.parametrize(
    "text",
    [
        "kind: Secret\nstringData:\n  POSTGRES_PASSWORD: postgres\n",
        "enable password 0 postgres\nhostname core\n",
        "POSTGRES_PASSWORD=postgres\nDATABASE_URL=postgres://root:postgres@db/app\n",
    ],
)
def test_a_trivial_word_is_no_secret_in_any_place(text: str) -> None:
    assert Redactor(b"salt").text(text) == text
