"""Kinds of secrets, personal data and look-alikes that no redaction rule was written for or tuned on.

In: nothing. Out: `HELD_OUT`, rows of `planted.Kind`. While rules are tuned only the total over these rows is looked
at, never a single failure; the numbers in `docs/redaction.md` name them apart from the known kinds.
"""

from __future__ import annotations

from benchmarks.planted_kinds import Kind

HELD_OUT = (
    # Vendor tokens with a prefix of their own.
    Kind("frame_io", "secret", "fio-u-<b62:64>"),
    Kind("prefect", "secret", "pnu_<lown:36>"),
    Kind("readme_io", "secret", "rdme_<lown:70>"),
    Kind("typeform", "secret", "tfp_<b62:44>_<b62:14>"),
    Kind("shippo", "secret", "shippo_live_<hex:40>"),
    Kind("duffel", "secret", "duffel_test_<b62:43>"),
    Kind("easypost", "secret", "EZAK<b62:54>"),
    Kind("adafruit", "secret", "aio_<b62:28>"),
    Kind("scalingo", "secret", "tk-us-<b62:48>"),
    Kind("lightstep", "secret", "lsp_<b62:52>"),
    # A name beside the value, in a notation of its own.
    Kind("xml_element", "secret", "<pass:14>", ("<password>{}</password>", '  <add key="DbPassword" value="{}" />')),
    Kind("php_define", "secret", "<pass:16>", ("define('DB_PASSWORD', '{}');", "define( 'AUTH_KEY', '{}' );")),
    Kind(
        "sql_identified",
        "secret",
        "<pass:13>",
        ("CREATE USER app IDENTIFIED BY '{}';", "ALTER ROLE app WITH PASSWORD '{}';"),
    ),
    Kind("sshpass", "secret", "<pass:12>", ("sshpass -p '{}' ssh deploy@10.0.0.4",)),
    Kind("redis_cli", "secret", "<b62:24>", ("redis-cli -h cache.internal -a {} ping",)),
    Kind("docker_login", "secret", "<b62:28>", ("docker login -u ci -p {} registry.internal",)),
    Kind("docker_env", "secret", "<b62:30>", ("docker run -e API_TOKEN={} -p 80:80 app",)),
    Kind(
        "terraform_var", "secret", "<b62:32>", ('variable "api_token" {{\n  default = "{}"\n}}', 'db_password = "{}"')
    ),
    Kind("java_properties", "secret", "<pass:15>", ("spring.datasource.password={}", "jdbc.password : {}")),
    Kind("groovy_credentials", "secret", "<pass:14>", ("credentials {{ username 'ci'; password '{}' }}",)),
    Kind("go_struct", "secret", "<b62:32>", ('cfg := Config{{Host: "db", APIKey: "{}"}}', 'ClientSecret:   "{}",')),
    Kind("rust_const", "secret", "<b62:40>", ('const API_TOKEN: &str = "{}";',)),
    Kind("elixir_config", "secret", "<b64:64>", ('config :app, AppWeb.Endpoint, secret_key_base: "{}"',)),
    Kind(
        "powershell",
        "secret",
        "<pass:16>",
        ('$env:CLIENT_SECRET = "{}"', '$password = ConvertTo-SecureString "{}" -AsPlainText'),
    ),
    Kind("fish_set", "secret", "<b62:32>", ("set -gx SERVICE_API_KEY {}",)),
    Kind("bat_set", "secret", "<b62:32>", ("set SERVICE_TOKEN={}", "setx SERVICE_TOKEN {}")),
    Kind("helm_set", "secret", "<pass:14>", ("helm upgrade app ./chart --set auth.password={}",)),
    Kind("kubectl_literal", "secret", "<pass:14>", ("kubectl create secret generic db --from-literal=password={}",)),
    Kind("vault_kv", "secret", "<pass:16>", ("vault kv put secret/app password={}",)),
    Kind("aws_configure", "secret", "<b64:40>", ("aws configure set aws_secret_access_key {}",)),
    Kind("odbc", "secret", "<pass:12>", ("Driver={{SQL Server}};Server=db;Uid=sa;Pwd={};",)),
    Kind("ldap_bind", "secret", "<pass:13>", ("ldapsearch -x -D cn=admin -w '{}' -b dc=corp", "bind_password: {}")),
    Kind("smtp_url", "secret", "<b62:18>", ("smtps://mailer:{}@mail.corp.io:465",)),
    Kind("redis_url", "secret", "<b62:20>", ("REDIS=redis://:{}@cache-7.corp.io:6379/0",)),
    Kind("amqp_url", "secret", "<b62:22>", ("amqps://svc:{}@mq.corp.io/vhost",)),
    Kind("npm_basic", "secret", "<b64:32>", ("//registry.corp.io/:_auth={}", "//registry.corp.io/:_password={}")),
    Kind(
        "said_in_words", "secret", "<pass:13>", ("the password is {} for staging", "use the token {} when you call it")
    ),
    # Personal data.
    Kind("email_subdomain", "pii", "<first>.<last>@eng.<dom>.co.uk"),
    Kind("email_plus", "pii", "<first>+ci@<dom>.dev"),
    Kind("email_mailto", "pii", "<first>_<last>@<dom>.org", ('<a href="mailto:{}">write</a>', "mailto:{}?subject=hi")),
    Kind("phone_uk", "pii", "+44 20 7<dig:3> <dig:4>"),
    Kind("phone_de", "pii", "+49 30 <nz:1><dig:7>"),
    Kind("phone_jp", "pii", "+81-3-<nz:1><dig:3>-<dig:4>"),
    Kind("phone_us_dots", "pii", "(<nz:1>12) 555-<dig:4>"),
    Kind("iban_fr", "pii", "<iban:FR:23>"),
    Kind("ipv6_full", "pii", "2a02:<hex:4>:<hex:4>:<hex:4>:<hex:4>:<hex:4>:<hex:4>:<hex:4>"),
    Kind("home_windows", "pii", "<first><last>", ("C:\\Users\\{}\\AppData\\Local", "/c/Users/{}/src")),
    Kind("home_wsl", "pii", "<first>.<last>", ("/mnt/c/Users/{}/code/app.py",)),
    Kind("reviewed_by", "pii", "<First> <Last>", ("Reviewed-by: {} <dev@<dom>.io>", "Tested-by: {} <t@<dom>.io>")),
    Kind("mailmap", "pii", "<First> <Last>", ("{} <m@<dom>.io> <old@<dom>.io>",)),
    # Look-alikes that must stay.
    Kind("etag", "keep", 'W/"<hex:32>"', ("ETag: {}",)),
    Kind("cargo_checksum", "keep", "<hex:64>", ('checksum = "{}"',)),
    Kind(
        "yarn_resolved", "keep", "<hex:40>", ('resolved "https://registry.yarnpkg.com/lodash/-/lodash-4.17.21.tgz#{}"',)
    ),
    Kind("nix_hash", "keep", "sha256-<b64:43>=", ('hash = "{}";',)),
    Kind("ulid", "keep", "01<upn:24>", ("order {} shipped",)),
    Kind("objectid", "keep", "<hex:24>", ("_id: ObjectId('{}')",)),
    Kind("k8s_pod", "keep", "api-<hex:10>-<lown:5>", ("pod/{} 1/1 Running",)),
    Kind("trace_parent", "keep", "00-<hex:32>-<hex:16>-01", ("traceparent: {}",)),
    Kind("ec2_instance", "keep", "i-0<hex:16>", ("instance {} is running",)),
    Kind(
        "token_counts",
        "keep",
        "<nz:1><dig:4>",
        ("max_tokens: {}", "prompt_tokens={} completion_tokens=12", '"total_tokens": {}'),
    ),
    Kind("env_lookup", "keep", "process.env.<UP:8>_TOKEN", ("const token = {};", "apiKey: {},")),
    Kind("go_getenv", "keep", 'os.Getenv("<UP:8>_SECRET")', ("secret := {}",)),
    Kind("secret_ref", "keep", "projects/p/secrets/<low:8>/versions/3", ("secret: {}", "--set-secrets=KEY={}")),
    Kind("help_text", "keep", "your personal access token", ("--token string   {}", "password: {}")),
    Kind("test_name", "keep", "TestTokenRefreshKeepsPasswordHash<First>", ("--- PASS: {} (0.01s)",)),
    Kind("timestamp_ms", "keep", "17<dig:11>", ("ts={}", "created at {}", '"startedAt": {}')),
    Kind(
        "semver_build",
        "keep",
        "2.<dig:1>.<dig:2>.<dig:3>",
        ("version {}", "Chrome/{} Safari", "assembly Foo, Version={}"),
    ),
    Kind("css_color_run", "keep", "#<hex:6>", ("color: {}; background: #fff",)),
    Kind("blob_url", "keep", "/assets/index-<b62:8>.js", ('<script src="{}"></script>',)),
    Kind(
        "class_path", "keep", "com.corp.security.token.PasswordTokenProvider<First>", ("at {}.get(Provider.java:41)",)
    ),
)
