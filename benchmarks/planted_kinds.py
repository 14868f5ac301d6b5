"""Kinds of values that the redaction benchmark plants, and the small language their shapes are written in.

In: nothing. Out: `Kind`, `fill`, and `KNOWN`, the kinds that rules were written for. `<b62:36>` stands for 36 random
characters of an alphabet, `<first>` for a name; `{}` in a context is where the value goes, `{{` a brace.
"""

from __future__ import annotations

import random
import re
import string
from dataclasses import dataclass

ALPHABETS = {
    "b62": string.ascii_letters + string.digits,
    "b64": string.ascii_letters + string.digits + "+/",
    "b64u": string.ascii_letters + string.digits + "-_",
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "dig": string.digits,
    "nz": "23456789",
    "low": string.ascii_lowercase,
    "UP": string.ascii_uppercase,
    "lown": string.ascii_lowercase + string.digits,
    "upn": string.ascii_uppercase + string.digits,
    "b32": string.ascii_uppercase + "234567",
}
FIRST = [
    "amelie",
    "bogdan",
    "chiara",
    "dmitri",
    "esther",
    "fatima",
    "gunnar",
    "hiroko",
    "ingrid",
    "joaquin",
    "katarina",
    "lorenzo",
    "mireille",
    "nikhil",
    "oksana",
    "priyanka",
]
LAST = [
    "abernathy",
    "bianchi",
    "castellano",
    "dvorak",
    "eriksson",
    "fernandez",
    "grigoriev",
    "haraldsen",
    "iwasaki",
    "jankowski",
    "kowalczyk",
    "lindqvist",
    "moreau",
]
DOMAINS = ["northwindlabs", "helioforge", "quantaquay", "brightmoor", "kestrelworks", "lumenpath"]
_HOLE = re.compile(
    r"<(?:(b62|b64u|b64|hex|HEX|dig|nz|low|UP|lown|upn|b32|pass|iban)(?::([A-Z]{2}:)?(\d+))|(first"
    r"|last|First|Last|dom))>"
)

SHAPE_CONTEXTS = (
    "{}",
    "export SERVICE={}",
    "use {} here",
    "Exit code 1\nerror: could not log in with {}",
    '{{"result": "ok", "value": "{}"}}',
    '{{"log": "line one\\n{}\\nline three"}}',
    "     7\tcurrent: {}",
    "    12→  value = '{}'",
    "+    client = Client('{}')\n-    client = Client(old)",
    "\x1b[32m{}\x1b[0m done",
    "curl -s https://api.corp.io/v1/x -H 'X-Thing: {}'",
    "https://api.corp.io/v1?x=1&y={}&z=2",
)
NAME_CONTEXTS = (
    "SERVICE_API_KEY={}",
    'api_key: "{}"',
    "client_secret: {}",
    '{{"accessToken": "{}", "expires_in": 3600}}',
    "+AUTH_TOKEN={}",
    "   31\tsecret_key = '{}'",
    "--api-key {} --verbose",
)
PASSWORD_CONTEXTS = (
    "DB_PASSWORD={}",
    'password: "{}"',
    "  password: {}",
    '{{"user": "svc", "password": "{}"}}',
    "mysql --user=root --password={} app",
    "     4\tPASSWORD='{}'",
    "conn = connect(host='db', password='{}')",
)
PLAIN = ("{}", "value {} seen", '{{"value": "{}"}}', "    12→{}", "+  {}")


@dataclass(frozen=True)
class Kind:
    """One kind of value: its class (secret, pii or keep), its shape, and the texts it is found in."""

    name: str
    klass: str
    value: str
    contexts: tuple[str, ...] = ()

    def around(self) -> tuple[str, ...]:
        return self.contexts or (SHAPE_CONTEXTS if self.klass == "secret" else PLAIN)


def fill(template: str, rng: random.Random) -> str:
    """Return the template with each hole filled by chance."""
    return _HOLE.sub(lambda hole: _draw(hole, rng), template)


def _draw(hole: re.Match[str], rng: random.Random) -> str:
    alphabet, country, number, word = hole.groups()
    if word:
        drawn = rng.choice({"first": FIRST, "last": LAST, "dom": DOMAINS}[word.lower()])
        return drawn.title() if word[0].isupper() else drawn
    if alphabet == "pass":
        return _password(int(number), rng)
    if alphabet == "iban":
        return _iban(country[:2], int(number), rng)
    drawn = "".join(rng.choice(ALPHABETS[alphabet]) for _ in range(int(number)))
    return drawn if alphabet == "dig" or len(drawn) < 12 or any(c.isdigit() for c in drawn) else "7" + drawn[1:]


def _password(length: int, rng: random.Random) -> str:
    drawn = [
        rng.choice(string.ascii_lowercase),
        rng.choice(string.ascii_uppercase),
        rng.choice(string.digits),
        rng.choice("!#%+_-*"),
    ]
    drawn += [rng.choice(ALPHABETS["b62"]) for _ in range(length - 4)]
    rng.shuffle(drawn)
    # A leading sign reads as a flag or an operator in the shell texts.
    return "k" + "".join(drawn)[1:]


def _iban(country: str, length: int, rng: random.Random) -> str:
    account = "".join(rng.choice(string.digits) for _ in range(length))
    turned = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{country}{98 - int(turned) % 97:02d}{account}"


def luhn_card(prefix: str, length: int, rng: random.Random) -> str:
    """Return a card number whose check digit is right."""
    body = prefix + "".join(rng.choice(string.digits) for _ in range(length - len(prefix) - 1))
    digits = [int(c) for c in reversed(body)]
    total = sum(2 * d - 9 if 2 * d > 9 else 2 * d for d in digits[::2]) + sum(digits[1::2])
    return body + str(-total % 10)


def _secret(name: str, value: str) -> Kind:
    return Kind(name, "secret", value)


def _named(name: str, value: str, *contexts: str) -> Kind:
    return Kind(name, "secret", value, contexts or NAME_CONTEXTS)


_PEM_BODY = "\n".join(["<b64:64>"] * 12)

KNOWN = (
    _secret("github_classic", "ghp_<b62:36>"),
    _secret("github_oauth", "gho_<b62:36>"),
    _secret("github_app", "ghs_<b62:36>"),
    _secret("github_fine", "github_pat_<b62:22>_<b62:59>"),
    _secret("gitlab", "glpat-<b64u:20>"),
    _secret("gitlab_runner", "glrt-<b64u:20>"),
    _secret("huggingface", "hf_<b62:34>"),
    _secret("openai_old", "sk-<b62:20>T3BlbkFJ<b62:20>"),
    _secret("openai_project", "sk-proj-<b64u:74>T3BlbkFJ<b64u:74>"),
    _secret("openai_service", "sk-svcacct-<b64u:100>"),
    _secret("anthropic", "sk-ant-api03-<b64u:93>AA"),
    _secret("anthropic_oauth", "sk-ant-oat01-<b64u:86>-<b62:8>AA"),
    _secret("openrouter", "sk-or-v1-<hex:64>"),
    _secret("deepseek", "sk-<hex:32>"),
    _secret("google_api", "AIza<b64u:35>"),
    _secret("google_oauth", "ya29.a0<b64u:120>"),
    _secret("google_secret", "GOCSPX-<b64u:28>"),
    _secret("aws_key_id", "AKIA<b32:16>"),
    _secret("aws_temp_key_id", "ASIA<b32:16>"),
    _secret("azure_client_secret", "<b62:3>8Q~<b64u:34>"),
    _secret("slack_bot", "xoxb-<dig:12>-<dig:13>-<b62:24>"),
    _secret("slack_user", "xoxp-<dig:12>-<dig:12>-<dig:12>-<hex:32>"),
    _secret("slack_app", "xapp-1-A<upn:10>-<dig:13>-<hex:64>"),
    _secret("slack_webhook", "https://hooks.slack.com/services/T<upn:10>/B<upn:10>/<b62:24>"),
    _secret("stripe", "sk_live_<b62:24>"),
    _secret("stripe_restricted", "rk_live_<b62:99>"),
    _secret("stripe_hook", "whsec_<b62:32>"),
    _secret("twilio", "SK<hex:32>"),
    _secret("sendgrid", "SG.<b64u:22>.<b64u:43>"),
    _secret("mailgun", "key-<hex:32>"),
    _secret("mailchimp", "<hex:32>-us14"),
    _secret("npm", "npm_<b62:36>"),
    _secret("pypi", "pypi-AgEIcHlwaS5vcmc<b64u:150>"),
    _secret("docker", "dckr_pat_<b64u:27>"),
    _secret("digitalocean", "dop_v1_<hex:64>"),
    _secret("heroku", "HRKU-<b64u:60>"),
    _secret("databricks", "dapi<hex:32>"),
    _secret("vercel", "vcp_<b62:56>"),
    _secret("netlify", "nfp_<b62:36>"),
    _secret("supabase", "sbp_<hex:40>"),
    _secret("sentry", "sntryu_<hex:64>"),
    _secret("linear", "lin_api_<b62:40>"),
    _secret("notion", "ntn_<b62:46>"),
    _secret("figma", "figd_<b64u:40>"),
    _secret("airtable", "pat<b62:14>.<hex:64>"),
    _secret("postman", "PMAK-<hex:24>-<hex:34>"),
    _secret("newrelic", "NRAK-<upn:27>"),
    _secret("grafana", "glsa_<b62:32>_<hex:8>"),
    _secret("shopify", "shpat_<hex:32>"),
    _secret("square", "sq0atp-<b64u:22>"),
    _secret("telegram", "<nz:1><dig:9>:AA<b64u:33>"),
    _secret("discord", "MT<b62:22>.G<b62:5>.<b64u:38>"),
    _secret("discord_hook", "https://discord.com/api/webhooks/<nz:1><dig:17>/<b64u:68>"),
    _secret("replicate", "r8_<b62:37>"),
    _secret("groq", "gsk_<b62:52>"),
    _secret("xai", "xai-<b62:80>"),
    _secret("pinecone", "pcsk_<b62:6>_<b62:62>"),
    _secret("fireworks", "fw_<b62:24>"),
    _secret("together", "tgp_v1_<b64u:43>"),
    _secret("perplexity", "pplx-<b62:48>"),
    _secret("nvidia", "nvapi-<b64u:64>"),
    _secret("age", "AGE-SECRET-KEY-1<upn:58>"),
    _secret("vault", "hvs.<b64u:90>"),
    _secret("terraform", "<b62:14>.atlasv1.<b64u:67>"),
    _secret("atlassian", "ATATT3xFfGF0<b64u:170>"),
    _secret("tailscale", "tskey-auth-<b62:12>-<b62:32>"),
    _secret("jwt", "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOi<b64u:80>.<b64u:43>"),
    _secret("bcrypt", "$2b$12$<b62:53>"),
    _named(
        "aws_secret",
        "<b64:40>",
        "AWS_SECRET_ACCESS_KEY={}",
        "aws_secret_access_key = {}",
        '{{"SecretAccessKey": "{}"}}',
    ),
    _named(
        "azure_storage",
        "<b64:86>==",
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey={};EndpointSuffix=core.windows.net",
    ),
    _named("azure_sas", "<b62:43>%3D", "https://x.blob.core.windows.net/c?sv=2024-11-04&se=2026-12-01&sig={}"),
    _named("datadog", "<hex:32>", "DD_API_KEY={}", "DATADOG_API_KEY: {}", 'api_key: "{}"'),
    _named("cloudflare", "<b64u:40>", "CLOUDFLARE_API_TOKEN={}", "CF_API_TOKEN: {}"),
    _named("generic_b62", "<b62:40>"),
    _named("generic_hex", "<hex:40>"),
    _named("generic_uuid", "<hex:8>-<hex:4>-<hex:4>-<hex:4>-<hex:12>", "HEROKU_API_KEY={}", '{{"apiKey": "{}"}}'),
    _named("password", "<pass:12>", *PASSWORD_CONTEXTS),
    _named("password_word", "<low:6><dig:3>", *PASSWORD_CONTEXTS),
    _named("password_long", "<pass:24>", *PASSWORD_CONTEXTS),
    _named(
        "bearer",
        "<b64u:48>",
        "Authorization: Bearer {}",
        'curl -H "Authorization: Bearer {}" https://x.io',
        '{{"headers": {{"Authorization": "Bearer {}"}}}}',
    ),
    _named("basic", "c3ZjOn<b62:20>", "Authorization: Basic {}"),
    _named("header_key", "<b62:32>", "X-Api-Key: {}", "-H 'x-api-key: {}'", "PRIVATE-TOKEN: {}"),
    _named("cookie", "<b64u:40>", "Cookie: theme=dark; session={}", "Set-Cookie: sid={}; Path=/; HttpOnly"),
    _named(
        "postgres_url",
        "<pass:14>",
        "DATABASE_URL=postgres://app:{}@db-1.corp.io:5432/app",
        "psql postgresql://svc:{}@10.0.0.8/x",
    ),
    _named(
        "git_url",
        "<b62:30>",
        "git clone https://oauth2:{}@gitlab.corp.io/a/b.git",
        "https://x-access-token:{}@github.com/a/b",
    ),
    _named("mongo_url", "<pass:12>", "mongodb+srv://root:{}@cluster0.ab1cd.mongodb.net/test"),
    _named("sentry_dsn", "<hex:32>", "SENTRY_DSN=https://{}@o4504.ingest.sentry.io/4505"),
    _named("curl_user", "<pass:12>", "curl -u deploy:{} https://ci.corp.io/job", "curl --user 'svc:{}' https://x.io"),
    _named("mysql_p", "<b62:14>", "mysql -h db -u root -p{} app"),
    _named("npmrc", "<b62:36>", "//registry.npmjs.org/:_authToken={}"),
    _named("netrc", "<b62:24>", "machine api.corp.io login svc password {}"),
    _named("pgpass", "<b62:16>", "db-1.corp.io:5432:app:svc:{}"),
    _named("k8s_secret", "<b64:28>", "apiVersion: v1\nkind: Secret\ndata:\n  password: {}\n  username: YWRtaW4="),
    _named("k8s_env", "<pass:16>", "- name: DB_PASSWORD\n  value: {}", '{{"name": "DB_PASSWORD", "value": "{}"}}'),
    _named("query_token", "<b62:32>", "GET /v1/me?access_token={}&x=1 HTTP/1.1"),
    _named("kubeconfig_token", "<b64u:60>", "users:\n- name: admin\n  user:\n    token: {}"),
    _named(
        "pem",
        _PEM_BODY,
        "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n",
    ),
    # Personal data.
    Kind("email", "pii", "<first>.<last>@<dom>.com"),
    Kind("email_short", "pii", "<first>@<dom>.io"),
    Kind("email_escaped", "pii", "<last>@<dom>.io", ('{{"log": "x\\n{}\\ny"}}', 'print("by\\n{}")')),
    Kind("noreply_person", "pii", "4<dig:7>+<first><last>@users.noreply.github.com"),
    Kind(
        "ipv4",
        "pii",
        "5<dig:1>.<nz:1><dig:1>.1<dig:2>.<nz:1><dig:1>",
        ("connect to {}:443", "client {} - - [21/Nov/2026]", "ssh deploy@{}", '{{"ip": "{}"}}'),
    ),
    Kind("ipv6", "pii", "2a01:4f8:<hex:4>:<hex:4>::<nz:1>"),
    Kind("phone_e164", "pii", "+1415<nz:1><dig:6>"),
    Kind("phone_us", "pii", "(<nz:1>15) <nz:1>55-<dig:4>"),
    Kind("phone_us_dash", "pii", "<nz:1>15-<nz:1>55-<dig:4>"),
    Kind("phone_fr", "pii", "+33 6 <dig:2> <dig:2> <dig:2> <dig:2>"),
    Kind("card", "pii", "CARD"),
    Kind("iban_de", "pii", "<iban:DE:18>"),
    Kind("ssn", "pii", "4<dig:2>-4<dig:1>-4<dig:3>"),
    Kind("mac", "pii", "a4:83:e7:<hex:2>:<nz:1><hex:1>:<hex:1><nz:1>"),
    Kind(
        "git_author",
        "pii",
        "<First> <Last>",
        ("Author: {} <a@<dom>.io>", "Co-authored-by: {} <a@<dom>.io>", "Signed-off-by: {} <a@<dom>.io>"),
    ),
    Kind(
        "home_user",
        "pii",
        "<first><last>",
        (
            "/home/{}/src/app.py",
            "/Users/{}/code/x.ts:12",
            "-Users-{}-code-app",
            "C:\\Users\\{}\\code",
            "cat ~/.x; ls /home/{}",
        ),
    ),
    # Look-alikes that must stay.
    Kind("git_sha", "keep", "<hex:40>", ("commit {}", "HEAD is now at {}", "{}", "index {}..0000000")),
    Kind("git_short", "keep", "<hex:7>", ("* {} fix the build",)),
    Kind("sha256", "keep", "<hex:64>", ("sha256:{}", "{}  dist/app.whl", '"digest": "sha256:{}"')),
    Kind("md5", "keep", "<hex:32>"),
    Kind(
        "uuid",
        "keep",
        "<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>",
        ("{}", '"id": "{}"', "session {} resumed", "request_id={}"),
    ),
    Kind("integrity", "keep", "sha512-<b64:86>==", ('"integrity": "{}"', "  integrity {}")),
    Kind("go_sum", "keep", "h1:<b64:43>=", ("github.com/pkg/errors v0.9.1 {}",)),
    Kind("tool_id", "keep", "toolu_01<b62:22>", ("tool_use {}", '"tool_use_id": "{}"')),
    Kind("call_id", "keep", "call_<b62:24>"),
    Kind("chatcmpl", "keep", "chatcmpl-<b62:29>"),
    Kind("msg_id", "keep", "msg_01<b62:22>"),
    Kind("req_id", "keep", "req_011<b62:21>"),
    Kind("base64_text", "keep", "<b64:120>", ("{}", "data = {}", "echo {} | base64 -d")),
    Kind("tiny_image", "keep", "data:image/png;base64,iVBORw0KGgo<b64:180>"),
    Kind("camel", "keep", "getUserAuthTokenFromPasswordResetRequest<First>"),
    Kind("constant", "keep", "MAX_TOKEN_RETRY_COUNT_<UP:5>"),
    Kind("aws_example", "keep", "AKIAIOSFODNN7EXAMPLE", ("aws_access_key_id = {}", "{}")),
    Kind("placeholder", "keep", "sk-xxxxxxxxxxxxxxxxxxxxxxxx", ("OPENAI_API_KEY={}", "{}")),
    Kind("your_key", "keep", "your-api-key-here", ("API_KEY={}", 'api_key="{}"')),
    Kind("shell_ref", "keep", "${<UP:8>_TOKEN}", ("TOKEN={}", "Authorization: Bearer {}", "password: {}")),
    Kind("environ", "keep", 'os.environ["<UP:8>_KEY"]', ("api_key = {}", "token={}")),
    Kind("gha_secret", "keep", "${{ secrets.<UP:8>_TOKEN }}", ("token: {}", "password: {}")),
    Kind("getter", "keep", "get_<low:7>_token(request)", ("token = {}", "password = {}")),
    Kind("type_hint", "keep", "Optional[str]", ("password: {} = None", "token: {}")),
    Kind("private_ip", "keep", "192.168.<nz:1>.<nz:2>", ("listening on {}:8080",)),
    Kind("loopback", "keep", "127.0.0.1", ("http://{}:3000",)),
    Kind("version4", "keep", "1.<nz:2>.<nz:1>.<nz:3>", ("version {}", "pkg=={}", "v{}")),
    Kind("example_mail", "keep", "user@example.com"),
    Kind("noreply", "keep", "noreply@anthropic.com", ("Co-Authored-By: Claude <{}>",)),
    Kind("git_host", "keep", "git@github.com", ("{}:corp/app.git",)),
    Kind("npm_scope", "keep", "@types/node@22.<nz:1>.<nz:1>"),
    Kind("timestamp", "keep", "2026-11-<nz:1>1T09:<nz:1>2:31.412Z"),
    Kind("epoch", "keep", "17<dig:8>", ('"created": {}', "ts {}")),
    Kind("duration_line", "keep", "1<dig:3>.<dig:3>", ("took {} ms",)),
    Kind("line_col", "keep", "src/app.py:<nz:3>:<nz:2>"),
    Kind("docker_digest", "keep", "sha256:<hex:64>", ("FROM python@{}", "Digest: {}")),
    Kind("public_key", "keep", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI<b62:43>"),
    Kind("hash_name", "keep", "chunk-<b62:8>.js"),
    Kind("k8s_name", "keep", "web-<lown:10>-<lown:5>", ("pod {} created",)),
    Kind("arn", "keep", "arn:aws:iam::<nz:12>:role/deploy"),
    Kind("phone_like", "keep", "<nz:3>-<nz:2>", ("lines {}", "range {}")),
    Kind("decorator", "keep", "@pytest.mark.parametrize", ("{}('x', [1])",)),
    Kind("generic_home", "keep", "/home/runner/work/app", ("cd {}", "{}/src")),
)
