"""The named secrets of the third set, as commands, environments, requests, logs and people show them.

A value is only what must not be read; its surroundings stay out of it.
"""

from __future__ import annotations

from benchmarks.planted_kinds import Kind


def _named(name: str, value: str, *contexts: str) -> Kind:
    return Kind(f"third_{name}", "secret", value, contexts)


SHOWN: tuple[Kind, ...] = (
    _named("shell_export", "«strong»", "export DB_PASSWORD='§'", "export SMTP_PASS='§'", "declare -x PGPASSWORD='§'"),
    _named("dotenv", "«safe»", "«var»_PASSWORD=§\nAPP_ENV=production\n", "REDIS_PASSWORD=§\nREDIS_PORT=«port»\n"),
    _named("dotenv_quoted", "«strong»", 'APP_SECRET="§"\n', "MAIL_PASSWORD='§'\nMAIL_PORT=587\n"),
    _named("printenv", "«safe»", "SHELL=/bin/bash\nMYSQL_ROOT_PASSWORD=§\nLANG=C.UTF-8\nPWD=/srv/app"),
    _named(
        "docker_run",
        "«safe»",
        "docker run -d -e POSTGRES_PASSWORD=§ -p 5432:5432 postgres:17",
        "podman run --env ADMIN_PASSWORD=§ «word»:latest",
    ),
    _named(
        "compose",
        "«human»",
        "    environment:\n      MARIADB_PASSWORD: '§'\n",
        "    environment:\n      - RABBITMQ_DEFAULT_PASS=§\n",
    ),
    _named(
        "compose_command",
        "«safe»",
        'command: ["redis-server", "--requirepass", "§"]',
        "redis-server --requirepass § --appendonly yes",
    ),
    _named("dockerfile", "«safe»", "ENV JENKINS_ADMIN_PASSWORD=§\nRUN make", "ENV API_SECRET §\nEXPOSE 8080"),
    _named(
        "k8s_secret_data",
        "«b64of password»",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: «word»-db\ndata:\n  password: §\n",
    ),
    _named("k8s_string_data", "«strong»", "kind: Secret\nstringData:\n  admin-password: '§'\n"),
    _named("k8s_env", "«human»", "        - name: «var»_PASSWORD\n          value: '§'\n"),
    _named("kubectl_create", "«safe»", "kubectl create secret generic «word» --from-literal=password=§ -n prod"),
    _named(
        "helm_set",
        "«safe»",
        "helm upgrade «word» ./chart --set auth.rootPassword=§ --wait",
        "helm install «word» . --set-string db.password=§",
    ),
    _named("tfvars", "«strong»", 'db_password = "§"\nregion = "eu-west-1"\n', 'master_password      = "§"\n'),
    _named(
        "tfstate",
        "«strong»",
        '"attributes": {"engine": "postgres", "password": "§", "port": 5432, "username": "«word»"}',
    ),
    _named(
        "tf_output",
        "«b62 28»",
        "$ terraform output -raw db_password\n§\n",
        '$ terraform output -json\n{"admin_password": {"sensitive": true, "type": "string", "value": "§"}}',
    ),
    _named(
        "ansible_vars", "«human»", 'ansible_become_password: "§"\nansible_user: deploy\n', "vault_mysql_password: §\n"
    ),
    _named("ansible_host", "«safe»", "«word»1 ansible_host=10.1.1.7 ansible_user=ops ansible_ssh_pass=§"),
    _named(
        "actions_log", "«b62 32»", "##[group]Run ./deploy.sh\nenv:\n  DEPLOY_KEY: §\n  NODE_VERSION: 22\n##[endgroup]"
    ),
    _named("gitlab_ci", "«safe»", "deploy:\n  variables:\n    SSH_PASSWORD: §\n  script:\n    - ./deploy.sh\n"),
    _named("circle_env", "«b36 32»", "    environment:\n      COVERALLS_REPO_TOKEN: §\n"),
    _named(
        "postgres_url",
        "«safe»",
        "DATABASE_URL=postgres://«word»:§@«host»:5432/«word»",
        "psycopg2.connect('postgresql://«word»:§@«host»/«word»')",
    ),
    _named("mysql_url", "«safe»", "mysql+pymysql://«word»:§@«host»:3306/«word»?charset=utf8mb4"),
    _named("mongo_url", "«safe»", "mongodb+srv://«word»:§@cluster0.«b36 5».mongodb.net/?retryWrites=true&w=majority"),
    _named("redis_url", "«b62 48»", "REDIS_URL=rediss://default:§@«host»:6380/0", "redis://:§@«host»:6379"),
    _named("amqp_url", "«safe»", "amqps://«word»:§@«host»/«word»", "broker_url = 'amqp://«word»:§@«host»:5672//'"),
    _named(
        "url_encoded_password",
        "«b62 6»%21«b62 5»%23«b62 4»",
        "postgresql://«word»:§@«host»:5432/«word»",
        "https://«word»:§@«host»/git/«word».git",
    ),
    _named(
        "clickhouse_url",
        "«safe»",
        "clickhouse://default:§@«host»:9440/«word»?secure=true",
        "nats://«word»:§@«host»:4222",
    ),
    _named(
        "smtp_url",
        "«safe»",
        "EMAIL_URL=smtps://«word»:§@smtp.«domain»:465",
        "MAILER_DSN=smtp://«word»:§@smtp.«domain»:587",
    ),
    _named(
        "ftp_url", "«safe»", "lftp -e 'mirror -R dist' sftp://deploy:§@«host»", "wget -r ftp://«word»:§@«host»/backup/"
    ),
    _named(
        "git_remote",
        "«safe»",
        "origin\thttps://«word»:§@git.«domain»/«word».git (fetch)",
        "fatal: unable to access 'https://ci:§@git.«domain»/«word».git/': 403",
    ),
    _named(
        "pip_index",
        "«b62 40»",
        "pip install --extra-index-url https://reader:§@pypi.«domain»/simple «word»",
        "index-url = https://«word»:§@«host»/simple",
    ),
    _named("proxy_url", "«safe»", "export HTTPS_PROXY=http://«word»:§@proxy.«domain»:3128"),
    _named(
        "jdbc_query",
        "«safe»",
        "jdbc:postgresql://«host»:5432/«word»?user=«word»&password=§&ssl=true",
        "jdbc:mysql://«host»/«word»?user=root&password=§",
    ),
    _named("jdbc_oracle", "«safe»", "jdbc:oracle:thin:«word»/§@//«host»:1521/ORCLPDB1"),
    _named("odbc", "«strong»", "DRIVER={ODBC Driver 18 for SQL Server};SERVER=«host»;UID=sa;PWD=§;Encrypt=yes"),
    _named(
        "ado_net",
        "«strong»",
        '"DefaultConnection": "Server=«host»,1433;Database=«word»;User Id=app;Password=§;TrustServerCertificate=True"',
    ),
    _named("libpq_dsn", "«safe»", "psql 'host=«host» dbname=«word» user=«word» password=§ sslmode=require'"),
    _named("pgpass", "«safe»", "«host»:5432:«word»:«word»:§\n*:*:*:backup:«b62 12»\n"),
    _named("go_mysql_dsn", "«safe»", 'sql.Open("mysql", "«word»:§@tcp(«host»:3306)/«word»?parseTime=true")'),
    _named(
        "netrc", "«b62 32»", "machine «host»\n  login «word»\n  password §\n", "machine «host» login «word» password §"
    ),
    _named(
        "curl_user",
        "«strong»",
        "curl -u '«word»:§' https://«host»/api/v1/«word»",
        "curl --user «word»:'§' -X POST https://«host»/«word»",
    ),
    _named(
        "curl_form",
        "«strong»",
        "curl -X POST https://«host»/oauth/token -d 'grant_type=password&username=«word»&password=§'",
    ),
    _named(
        "curl_json",
        "«strong»",
        """curl -d '{"email":"«email»","password":"§"}' -H 'Content-Type: application/json' https://«host»/login""",
    ),
    _named(
        "httpie",
        "«safe»",
        "http -a «word»:§ GET https://«host»/api/«word»",
        "http POST :8000/login username=«word» password=§",
    ),
    _named(
        "wget_flags",
        "«safe»",
        "wget --user=«word» --password=§ https://«host»/«word».tar.gz",
        "wget --http-user «word» --http-password § https://«host»/",
    ),
    _named(
        "mysql_flag",
        "«safe»",
        "mysql -h «host» -u root -p§ «word» < dump.sql",
        "mysqldump --user=root --password=§ «word»",
    ),
    _named(
        "sshpass",
        "«human»",
        "sshpass -p '§' ssh -o StrictHostKeyChecking=no root@10.0.3.7",
        "sshpass -p '§' scp a.tgz deploy@«host»:/srv/",
    ),
    _named("redis_cli", "«safe»", "redis-cli -h «host» -a § ping", "127.0.0.1:6379> AUTH §\nOK"),
    _named("ldap_flag", "«safe»", "ldapsearch -x -D 'cn=admin,dc=«word»,dc=com' -w § -b 'dc=«word»,dc=com'"),
    _named(
        "docker_login",
        "«safe»",
        "docker login -u «word» -p § registry.«domain»",
        "helm registry login «host» --username «word» --password §",
    ),
    _named(
        "openssl_pass",
        "«safe»",
        "openssl pkcs12 -export -in a.crt -inkey a.key -out a.p12 -passout pass:§",
        "openssl enc -d -aes-256-cbc -in a.enc -pass pass:§",
    ),
    _named(
        "keytool",
        "«safe»",
        "keytool -importkeystore -srckeystore a.p12 -srcstorepass § -destkeystore a.jks",
        "jarsigner -storepass § app.jar «word»",
    ),
    _named("gpg_pass", "«phrase»", "gpg --batch --pinentry-mode loopback --passphrase '§' -d secrets.gpg"),
    _named("restic", "«safe»", "restic -r s3:s3.«domain»/«word» backup /srv  # RESTIC_PASSWORD=§"),
    _named("gcloud_output", "«strong»", "$ gcloud secrets versions access latest --secret=«word»-db-password\n§\n"),
    _named(
        "az_output",
        "«b62 44»",
        '{\n  "appId": "«uuid»",\n  "displayName": "«word»",\n  "password": "§",\n  "tenant": "«uuid»"\n}',
    ),
    _named("heroku_config", "«b62 40»", "=== «word» Config Vars\nSECRET_KEY_BASE: §\nWEB_CONCURRENCY: 2\n"),
    _named(
        "vault_kv",
        "«strong»",
        "====== Data ======\nKey         Value\n---         -----\npassword    §\nusername    «word»\n",
    ),
    _named("rails_master", "«hex 32»", "RAILS_MASTER_KEY=§ bin/rails server", "$ cat config/master.key\n§\n"),
    _named("laravel_key", "«b64 43»=", "APP_KEY=base64:§\nAPP_DEBUG=false\n"),
    _named("django_key", "«b36 20»!@«b36 10»%&«b36 14»", "SECRET_KEY = 'django-insecure-§'", 'SECRET_KEY = "§"'),
    _named("jwt_secret_phrase", "«phrase»", "JWT_SECRET=§", "jwt:\n  secret: §\n  expiresIn: 3600\n"),
    _named("hmac_key", "«hex 64»", "SESSION_SECRET=§", "WEBHOOK_SIGNING_SECRET: §", 'encryption_key = "§"'),
    _named("otp_secret", "«B32 32»", "otpauth://totp/«word»:«email»?secret=§&issuer=«word»", "oathtool --totp -b §"),
    _named(
        "basic_header",
        "«b64of basic»",
        "Authorization: Basic §",
        '"authorization": "Basic §"',
        "curl -H 'Authorization: Basic §' https://«host»/",
    ),
    _named(
        "proxy_header",
        "«b64of basic»",
        "> CONNECT «host»:443 HTTP/1.1\n> Proxy-Authorization: Basic §\n> User-Agent: curl/8.9.1",
    ),
    _named(
        "bearer_opaque",
        "«b64u 43»",
        "Authorization: Bearer §",
        "> GET /v1/me HTTP/2\n> Host: api.«domain»\n> authorization: Bearer §\n> accept: */*",
    ),
    _named("key_header", "«b62 40»", "X-Api-Key: §", "PRIVATE-TOKEN: §", "> x-auth-token: §", "apikey: §"),
    _named(
        "session_cookie",
        "«b64u 64»",
        "Set-Cookie: connect.sid=s%3A§; Path=/; HttpOnly",
        "Cookie: sessionid=§; csrftoken=«b62 32»",
        "cookie: __Secure-next-auth.session-token=§",
    ),
    _named(
        "query_token",
        "«b62 40»",
        '10.0.0.9 - - "GET /feed?access_token=§&page=2 HTTP/1.1" 200 512',
        "wss://«host»/live?token=§",
        "GET /callback?code=«b62 12»&client_secret=§",
    ),
    _named(
        "oauth_json",
        "«b64u 86»",
        '{"access_token":"§","token_type":"Bearer","expires_in":3600}',
        '{"refresh_token": "§", "scope": "openid"}',
    ),
    _named("oauth_form", "«b64u 40»", "grant_type=client_credentials&client_id=«uuid»&client_secret=§"),
    _named(
        "set_x",
        "«safe»",
        "+ DB_PASSWORD=§\n+ pg_dump -h «host»",
        "++ API_TOKEN=§\n++ ./release.sh",
        "+ ./deploy.sh --password § --env prod",
    ),
    _named(
        "cli_flags",
        "«b62 32»",
        "./«word» sync --api-key § --verbose",
        "«word» push --token=§ --force",
        "«word» --client-secret='§' run",
    ),
    _named(
        "psql_alter",
        "«human»",
        "«word»=# ALTER USER «word» WITH PASSWORD '§';\nALTER ROLE",
        "CREATE ROLE «word» LOGIN PASSWORD '§';",
    ),
    _named(
        "mysql_identified",
        "«strong»",
        "mysql> CREATE USER '«word»'@'%' IDENTIFIED BY '§';\nQuery OK",
        "ALTER USER 'root'@'localhost' IDENTIFIED WITH mysql_native_password BY '§';",
    ),
    _named(
        "mongo_shell",
        "«strong»",
        'db.createUser({ user: "«word»", pwd: "§", roles: ["readWrite"] })',
        'db.auth("«word»", "§")',
    ),
    _named(
        "sql_insert",
        "«b62 40»",
        "INSERT INTO settings (key, value) VALUES ('stripe_secret_key', '§');",
        "UPDATE config SET smtp_password = '§' WHERE id = 1;",
    ),
    _named(
        "chpasswd",
        "«human»",
        "echo '«word»:§' | chpasswd",
        "echo '§' | sudo -S apt-get install -y «word»",
        "echo '§' | passwd --stdin «word»",
    ),
    _named(
        "user_data",
        "«human»",
        "#cloud-config\nchpasswd:\n  list: |\n    root:§\n",
        "users:\n  - name: ops\n    plain_text_passwd: '§'\n",
    ),
    _named(
        "stack_trace",
        "«safe»",
        "sqlalchemy.exc.OperationalError: no answer: postgresql://«word»:§@«host»/«word»\n  File 'app.py', line 3",
        "Error: Invalid credentials {user: '«word»', password: '§'}\n    at login (auth.js:12:9)",
    ),
    _named(
        "repr_dump",
        "«strong»",
        "Settings(db_host='«host»', db_password='§', debug=True)",
        "{'user': '«word»', 'passwd': '§', 'port': 3306}",
        "Config{User:«word» Password:§ Port:3306}",
    ),
    _named(
        "key_value_log",
        "«safe»",
        'level=info msg="login" user=«word» password=§ ip=10.0.0.4',
        "DEBUG auth params: username=«word», password=§, retries=3",
    ),
    _named(
        "prose_english",
        "«human»",
        "The password for the staging box is §, please don't change it.",
        "log in as «word» with password § and check the page",
        "use `§` as the admin password",
    ),
    _named("prose_handover", "«human»", "Admin login: «email» / §", "creds: «word» / §", "user: «word»\npass: §\n"),
    _named(
        "prose_german",
        "«human»",
        "Das Passwort für den Server lautet §, bitte nicht weitergeben.",
        "Passwort: §",
        "Kennwort ist §",
    ),
    _named(
        "prose_spanish", "«human»", "la contraseña del servidor es §", "Contraseña: §", "usa la clave § para entrar"
    ),
    _named("prose_french", "«human»", "le mot de passe de la base est §", "Mot de passe : §"),
    _named("prose_chinese", "«human»", "数据库密码是 § ,不要泄露", "密码:§"),
    _named("prose_russian", "«human»", "пароль от сервера: §", "Пароль — §, логин admin"),
    _named("prose_japanese", "«human»", "パスワードは § です", "パスワード:§"),
    _named(
        "prose_token",
        "«b62 40»",
        "here's my api key: § - can you wire it up?",
        "the API token is §",
        "My key is § and the secret is in the vault",
    ),
    _named(
        "markdown_table",
        "«human»",
        "| Service | User | Password |\n|---|---|---|\n| grafana | admin | § |\n",
        "| Password | `§` |",
    ),
    _named("markdown_bullets", "«strong»", "- **Username**: «word»\n- **Password**: `§`\n"),
    _named("wifi", "«human»", 'network={\n  ssid="«word»"\n  psk="§"\n}', "nmcli dev wifi connect «word» password '§'"),
    _named("iam_csv", "«b64 40»", "User name,Access key ID,Secret access key\n«word»,AKIA«B32 16»,§\n"),
    _named(
        "shown_once",
        "«b62 32»",
        "machine: «host»\nadmin token (shown once): §\n",
        "Your new API key (you will not see it again):\n\n    §\n",
    ),
    _named(
        "generated_password",
        "«b62 20»",
        "Generated admin password: §",
        "*** Initial root password: § ***",
        "GitLab initial password\nPassword: §\n",
    ),
)
