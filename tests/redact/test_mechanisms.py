"""Each mechanism that finds a secret or a person without a known prefix, and the look-alikes that it keeps."""

from __future__ import annotations

import random
import string

import pytest

from benchmarks.redaction.plants import plants
from composer_hub.records import Message, Trace
from composer_hub.redact import Redactor
from composer_hub.redact.finders import find
from composer_hub.redact.judge import looks_like_password
from composer_hub.redact.match import Subject
from composer_hub.redact.text import redact_text
from composer_hub.redact.tokens import known_tokens, tokens_in
from composer_hub.redact.triggers import Triggers
from composer_hub.redact.users import user_names


def drawn(length: int, alphabet: str = string.ascii_letters + string.digits, seed: int = 11) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(alphabet) for _ in range(length))


def place(label: str, value: str, rule: str) -> str:
    return f"[{label}_1]"


B62 = drawn(80)
HEX = drawn(80, "0123456789abcdef")
PW = "Lagoon?Tundra3018"

# § marks the value, which is the second of the pair.
HIDDEN = {
    # Tables and neighbours.
    "a column in Markdown": ("| user | password |\n|---|---|\n| bob | § |", PW),
    "a column in psql": (" id | email | password\n----+-------+----------\n  1 | a | §\n(1 row)", PW),
    "a column of CSV": ("username,password,role\nbob,§,admin\n", PW),
    "a property list": ("<key>ApiToken</key>\n<string>§</string>", B62[:20]),
    "a Hadoop property": ("<property>\n<name>fs.secret.key</name>\n<value>§</value>", B62[:20]),
    "an attribute beside its name": ('<add value="§" key="ServicePassword" />', B62[:20]),
    "a value before its name": ('x {"value": "§", "name": "SMTP_PASSWORD"} x', B62[:20]),
    "a value under its name": ('x {"admin_password": {"type": "string", "value": "§"}} x', B62[:20]),
    "a Kubernetes secret": ("kind: Secret\nmetadata:\n  name: x\nstringData:\n  dsn: §\n", B62[:20]),
    "a Kubernetes secret whose data come first": ("data:\n  dsn: §\nkind: Secret\nmetadata:\n  name: x\n", B62[:20]),
    "a key list of a cloud": ('{"keyName": "key1",\n "value": "§" x', drawn(86) + "=="),
    "a private JWK": ('x {"kty":"EC","crv":"P-256","d":"§"} x', B62[:43]),
    # Sentences.
    "English": ("The password for the staging box is § for now", PW),
    "German": ("Das Kennwort lautet §", PW),
    "French": ("Mot de passe : §", PW),
    "Russian": ("Пароль от базы: §", PW),
    "Chinese": ("密码是 §", PW),
    "named afterwards": ("use § as the password", PW),
    "a value on the next line": ("Your new API key:\n\n    §\n", B62[:32]),
    "a login and its password": ("log in as admin / §", PW),
    "words of a wallet": ("seed phrase: §", "abandon zoo lamp orbit velvet cat river stone amber piano delta frost"),
    "recovery codes": ("Recovery codes:\n  §\n", "ab1cd-ef2gh"),
    # Commands.
    "net use": (r"net use \\srv\data § /user:bob", "k9Fq2LmZx7Wd"),
    "a user and a password in one": ("smbclient //srv/x -U bob%§", "k9Fq2LmZx7Wd"),
    "htpasswd": ("htpasswd -bc .htpasswd bob §", "k9Fq2LmZx7Wd"),
    "a vault": ("vault kv put secret/app api=§", B62[:20]),
    "a here-string": ("docker login -u bob --password-stdin <<< '§'", B62[:14]),
    "a pipe": ("echo '§' | cryptsetup luksOpen /dev/sda2 x -", B62[:14]),
    "a command over two lines": ("docker login \\\n  -u bob -p § r.io", B62[:14]),
    "a trace of the shell": ("+ sshpass -p § ssh root@h", "k9Fq2LmZx7Wd"),
    "what a command prints": ("$ op read op://prod/db/password\n§", B62[:22]),
    "what a file of secrets holds": ("$ cat config/master.key\n§\n", HEX[:32]),
    "a cookie that begins with a dash": ("curl -b 'sid=§' https://x.io", "-" + B62[:30]),
    # Calls and code.
    "a call": ('conn = pymysql.connect("db", "app", "§")', PW),
    "a call with a variable": ('server.login(user, "§")', PW),
    "a form": ("await page.fill('#password', '§')", PW),
    "a literal of another type": ('let password = String::from("§");', B62[:20]),
    "a field of a form": ('Content-Disposition: form-data; name="password"\n\n§', B62[:20]),
    "a fallback": ("process.env.DB_PASSWORD || '§'", B62[:20]),
    "a comparison": ('expect(body.password).toBe("§")', B62[:20]),
    "a data source": ('sql.Open("mysql", "bob:§@tcp(127.0.0.1:3306)/x")', "k9Fq2LmZx7Wd"),
    "Oracle": ("jdbc:oracle:thin:app/§@//db:1521/X", "k9Fq2LmZx7Wd"),
    "SQL": ("IDENTIFIED WITH mysql_native_password BY '§'", "k9Fq2LmZx7Wd"),
    "a scheme of one's own": ("Authorization: AcmeV1 §", B62[:30]),
    "a header of any name": ("X-Acme-Auth: §", B62[:30]),
    "an OAuth code": ("http://localhost/cb?code=§&state=x", B62[:40]),
    "SQL with a national string": ("CREATE LOGIN sa2 WITH PASSWORD = N'§';", "Ledger~6106OAj3u"),
    "a connection string": ("Server=db;Database=x;User Id=sa;Password=§;Encrypt=True", "Falcon_4863ghYSc"),
    "a short connection string": ("DRIVER={ODBC};SERVER=db;UID=svc;PWD=§;", "Beacon_7051100DD"),
    "accounts of a chain": ("accounts: ['§']", "0x" + HEX[:64]),
    "a hexadecimal variable in a sentence": ("The TOGETHER_API_KEY is § and it works.", HEX[:64]),
    "a cookie of Erlang": ("erl -setcookie § -name a@b", "IIYEBPPRWNMXXWVHIRHH"),
    "a phrase of SNMP": ("snmpwalk -v3 -u u -A § x", "s1l9pHw1AXDFPf"),
    "a token encrypted directly": (
        "got § ok",
        "eyJhbGciOiJkaXIiLCJlbmMiOiJB.." + ".".join((B62[:16], B62[16:76], B62[:22])),
    ),
    # Words that test runners also print.
    "a login in capitals": ("USER: bob\nPASS: §\n", "Falcon1402"),
    "a variable in capitals": ("environment:\n  PASS: §\n", "Falcon1402"),
    "a machine's password in capitals": ("PASS: §", B62[:16]),
    "a password with signs in capitals": ("PASS: §", PW),
    "a password of a server": ("SMTP PASS: §", PW),
    # Lines as tools show them.
    "behind a file and a number": ("src/a.yml:4:- name: DB_PASSWORD\nsrc/a.yml:5:  value: §", B62[:14]),
    "behind times": (
        "2026-04-10T05:23:46.58Z - name: DB_PASSWORD\n2026-04-10T05:23:46.58Z   value: §",
        B62[:14],
    ),
}
KEPT = {
    "a result of Go": "    --- PASS: TestWithAgent/sha256_of_Key9 (0.00s)\n--- PASS: TestWithAgent (0.00s)",
    "a result of Go behind a file and a number": "ci.log:12:--- PASS: TestLogin2FA (0.01s)",
    "a result of Go in JSON": '{"output": "ok\\n--- PASS: TestLogin2FA (0.01s)\\n"}',
    "a result of a test runner": "PASS: test_login_2fa\nXPASS: Sha256Case1 (12ms)\nFAIL: test_token_b64",
    "a result with a time": "2026-04-10T05:23:46.58Z PASS: test_login_2fa",
    "a numbered result": "not ok 12 - PASS: test_login_2fa",
    "a colored result": "\x1b[32mPASS: test_login_2fa\x1b[0m",
    "a result behind a folder": "make: Entering directory '/src'\nPASS: Sha256Case1.sh",
    "a key to receive": "apt-key adv --recv-keys 5FA9C93208B4CC94 && gpg --recv-key 5FA9C93208B4CC94",
    "a statement behind another": "a=1;password=this_value2;b",
    "accounts on a chain": f"accounts: ['0x{HEX[:40]}'] hash: ['0x{HEX[:64]}']",
    "a variable that is something else": "The API_KEY is required, MAX_TOKENS is 4096, DB_PASSWORD is set_by_ci",
    "a table of words": "| Token | Purpose |\n|---|---|\n| syntaxKeyword | Keywords |\n| toolBg2 | Tools |",
    "a table of counts": "token,count\nthe,12\nGPT4,7",
    "a property that is a number": "<name>token.ttl</name><value>86400s</value>",
    "a public JWK": '{"kty":"EC","crv":"P-256","x":"' + B62[:20] + "-" + B62[21:43] + '"}',
    "a sealed secret": "kind: SealedSecret\nspec:\n  encryptedData:\n    x: " + B62[:40],
    "an algorithm": "the password hashing is PBKDF2-SHA256 with a salt, the key is AES-256-GCM",
    "a rule": "Passwords must contain 1 uppercase letter; Das Passwort muss 8 Zeichen haben",
    "a port": "docker run -p 8080:80 x && ssh -p 2222 bob@host && mysql -u root -p app",
    "a variable": 'curl -u "$USER:$PASS" https://x && docker login -p $TOKEN && vault login $T',
    "a piped greeting": 'echo "Hello1 World" | sudo tee a',
    "a cookie file": "curl -b cookies.txt https://x",
    "a variable that is printed": "$ echo $PATH\n/usr/local/bin:/usr/bin",
    "a call without a password": 'connect("ws://10.0.0.1:8080/v2"); login(username, password); client("eu-west-1")',
    "a validator": '"password": "required|string|min:8"',
    "a type": "password: varchar(255)",
    "a selector": "password: 'input[name=\"password\"]'",
    "a reference to a vault": "password: op://Vault/db-1/password",
    "a value that SOPS encrypted": "password: ENC[AES256_GCM,data:" + B62[:12] + ",iv:" + B62[:20] + "=]",
    "pages": f'{{"NextPageToken": "{B62[:24]}", "continuationToken": "{B62[:24]}"}}',
    "a lone key": f'key="item-{HEX[:16]}" key: build-cache-{HEX[:24]}',
    "a word that begins with key": f"docker.io/library/keycloak:26.0.1-{HEX[:10]}",
    "an authority": "certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J" + B62[:40],
    "an id": f"conn_{B62[:24]} pod_{B62[:24]} pk_live_{B62[:24]} PR_kwDO{B62[:26]}",
    "a build with a hash": f"latest-{HEX[:24]} attestation-{HEX[:32]} chunk-{B62[:28]}.wasm",
    "an address on a chain": f"token: 0x{HEX[:40]}",
    "a fingerprint": f"key SHA256:{drawn(43)} keyid: 3E:DB:23:CE:04:3E:DE:9C",
    "a list of names": '"Data2VecTextForTokenClassification",\n    "Data2VecTextModel",',
    "documentation's own keys": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "test cards": "4242 4242 4242 4242 and 4111111111111111",
    "numbers of examples": "call (415) 555-0132, ssn 078-05-1120",
    "a unit of systemd": "getty@tty1.service started",
    "a product of matrices": "att = q@k.transpose(-2, -1)",
    "a route called home": "see src/home/dashboard.tsx and https://x.io/home/settings",
    "words that could be a wallet's": "seed the database with the rows that the test needs and run it again please now",
}


@pytest.mark.parametrize(("context", "value"), HIDDEN.values(), ids=HIDDEN)
def test_a_secret_goes_and_its_surroundings_stay(context: str, value: str) -> None:
    assert redact_text(context.replace("§", value), place) == context.replace("§", "[SECRET_1]")


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_a_look_alike_stays(text: str) -> None:
    assert redact_text(text, place) == text


@pytest.mark.parametrize(("context", "value", "label"), [
    ("card § 12/27", "4539 1488 0343 6467", "CARD"),
    ("call § (24h)", "415-207-2671", "PHONE"),
    ("Handy: §", "0171/1234567", "PHONE"),
    ("ssn=§", "412 45 4321", "SSN"),
    ("from ::ffff:§ port 22", "51.37.197.72", "IP"),
    ("ssh ec2-§.compute.amazonaws.com", "51-37-197-72", "IP"),
    ("arp §", "3c22.fb9a.bcde", "MAC"),
    ("write to §", "jane [at] acme-corp [dot] io", "EMAIL"),
    ("u=x%3D§&y", "jane%40acme.io", "EMAIL"),
    ("Author: §", "Ludwig van der Berg", "NAME"),
    ('{name = "§", email = "x"}', "Jana Kolar", "NAME"),
    ("bob:x:1000:1000:§,,,:/srv", "Jana Kolar", "NAME"),
    ("^c5eb5e0 (§   2025-11-02 1) x", "Jana Kolar", "NAME"),
    ("customer_name=§", "Jana Kolar", "NAME"),
    ("Hi, my name is § and I own this.", "Jana Kolar", "NAME"),
    ("Thanks,\n§\nPlatform", "Jana Kolar", "NAME"),
])  # fmt: skip
def test_personal_data_goes_in_the_forms_people_write_it(context: str, value: str, label: str) -> None:
    assert redact_text(context.replace("§", value), place) == context.replace("§", f"[{label}_1]")


@pytest.mark.parametrize("text", [
    "janedoe@mbp ~ % ls", "(venv) janedoe@ubuntu:~/code$ ls", "uid=1000(janedoe) gid=1000(janedoe)",
    "[sudo] password for janedoe: ", "USER=janedoe", r"C:\\\\Users\\\\janedoe\\\\x", "\x1b[36m/home/janedoe\x1b[0m",
    "rootfs/home/janedoe/.bashrc", "src/a.ts:234:/home/janedoe/work/app/main.py",
    '{"output": "$ whoami\\njanedoe\\nok"}', "$ id -un\njanedoe\n$ ", "   12\t[janedoe@build01 app]$ make",
    "> janedoe@laptop:~/work$ ls", "scp -P 2222 a.txt janedoe@10.0.0.4:/tmp",
])  # fmt: skip
def test_a_user_name_is_learned_wherever_the_system_prints_it(text: str) -> None:
    assert "janedoe" in set(user_names(text))
    redacted = Redactor(b"s").trace(Trace("t", "x", "s", (Message("user", text), Message("user", "by janedoe")), ()))
    assert "janedoe" not in "".join(message.content for message in redacted.messages)


@pytest.mark.parametrize("text", [
    "src/home/dashboard", "https://x.io/home/settings", "USER=postgres", "/home/runner",
    "git clone ssh://git@x.io/a.git && ssh root@host", "ssh-keygen -C janedoe",
])  # fmt: skip
def test_folders_of_programs_and_generic_users_teach_nothing(text: str) -> None:
    assert list(user_names(text)) == []


@pytest.mark.parametrize("value", ["Cob4LtTimber1186", "fossil!Comet8570", "xK9#vL2$mQ", B62[:16], HEX[:32]])
def test_passwords_of_people_and_machines_look_like_passwords(value: str) -> None:
    assert looks_like_password(value)


@pytest.mark.parametrize("value", [
    "OAuth2Token", "Base64", "user_1234", "v1.2.3-Beta4", "src/Main2.java", "PROJ-1234", "us-east-1", HEX[:40],
    "foo(1)",
])  # fmt: skip
def test_names_versions_paths_and_digests_do_not_look_like_passwords(value: str) -> None:
    assert not looks_like_password(value)


# --------------------------------------------------------------------------------------------------- looking once


def test_words_that_were_seen_before_change_nothing() -> None:
    texts = [plant.text for plant in plants("second", 7)]
    first = [find(text) for text in texts]
    assert [find(text) for text in texts] == first


def test_tokens_found_word_by_word_are_those_found_in_the_whole_text() -> None:
    texts = [plant.text for plant in plants("second", 8, 3)]
    whole = [set(tokens_in(text)) for text in texts]
    assert [set(known_tokens(Subject(text, text.lower(), set()))) for text in texts] == whole
    assert sum(map(len, whole)) > 100


def test_a_trigger_is_found_within_a_word_and_a_whole_word_only_alone() -> None:
    triggers = Triggers(("passw", "_auth"), whole=("az", "ssh_keygen"))
    assert triggers.of("MyDbPassword and X-AUTH") == {"passw", "_auth"}
    assert triggers.of("lazy") == set()
    assert triggers.of("az login; ssh-keygen") == {"az", "ssh_keygen"}
    assert triggers.of("line one\\naz login") == {"az"}
    assert triggers.of("lazy az") == {"az"}
