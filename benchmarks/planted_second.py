"""A second set of planted values, written by another hand than the rules and than the first set.

In: a seed. Out: `second_plants`: values in the texts agents meet them in. The kinds are split by chance into a half
that rules were tuned on and a half that was only counted at first; the split was drawn before the first run.

A kind is a line `class name: value`, its contexts stand under it, one a line; `§` is where the value goes, `\\n` a line
end, holes are those of `planted_kinds.fill`.
Each text is carried as a tool shows it: plain, numbered, as a diff, in JSON.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from benchmarks.planted import Plant
from benchmarks.planted_kinds import Kind, fill, luhn_card

_KINDS = r"""
secret aws_sts: <b64:40>
  {"Credentials": {"AccessKeyId": "ASIA<b32:16>", "SecretAccessKey": "§", "Expiration": "2026-11-20T12:00:00Z"}}
  aws_secret_access_key = §
  export AWS_SECRET_ACCESS_KEY="§"
secret aws_session: FwoGZXIvYXdzE<b64:220>==
  "SessionToken": "§",
  aws_session_token=§
  $env:AWS_SESSION_TOKEN = '§'
secret gcloud_token: ya29.a0<b64u:160>
  $ gcloud auth print-access-token\n§
  curl -H "Authorization: Bearer §" https://storage.googleapis.com/b
secret azure_storage: <b64:86>==
  DefaultEndpointsProtocol=https;AccountName=corpdata;AccountKey=§;EndpointSuffix=core.windows.net
  [{"keyName": "key1", "permissions": "FULL", "value": "§"}]
secret azure_sp: <b62:3>8Q~<b64u:34>
  {"appId": "<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>", "displayName": "ci", "password": "§", "tenant": "corp"}
  ARM_CLIENT_SECRET=§
  az login --service-principal -u app -p § --tenant corp
secret azure_sas: <b62:42>%3D
  https://corpdata.blob.core.windows.net/backups/db.bak?sv=2023-11-03&se=2026-12-01&sr=b&sp=r&sig=§
  curl "https://x.blob.core.windows.net/c?restype=container&comp=list&sig=§"
secret s3_presigned: <hex:64>
  https://corp.s3.amazonaws.com/a.zip?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=§
secret kubectl_secret: <b64:44>
  apiVersion: v1\nkind: Secret\ndata:\n  password: §\n  username: YWRtaW4=
  $ kubectl get secret db -o yaml\ndata:\n  DB_PASS: §
secret k8s_sa_token: eyJhbGciOiJSUzI1NiIsImtpZCI6<b64u:30>.eyJpc3MiOiJrdWJlcm5ldGVz<b64u:120>.<b64u:86>
  token:      §
  kubectl --token=§ get pods
secret docker_auth: <b64:44>=
  {"auths": {"registry.corp.io": {"auth": "§"}}}
  "https://index.docker.io/v1/": {\n      "auth": "§"\n    }
secret docker_login: <b62:9>_<b62:9>
  docker login -u deploy -p § registry.corp.io
  echo '§' | docker login --username deploy --password-stdin registry.corp.io
secret terraform_state: <b62:20>
  "attributes": {"engine": "postgres", "master_password": "§", "port": 5432}
  + password = "§"
  variable "db_password" {\n  default = "§"\n}
secret vault_token: hvs.CAESI<b64u:90>
  Key                  Value\n---                  -----\ntoken                §
  export VAULT_TOKEN=§
secret vault_unseal: <b64:44>
  Unseal Key 1: §\nUnseal Key 2: x
  vault operator unseal §
secret op_read: <b62:22>
  $ op item get db --fields password --reveal\npassword: §
  $ op run -- env\nDB_PASSWORD=§
secret gh_auth_token: gho_<b62:36>
  $ gh auth token\n§
  github.com:\n    oauth_token: §\n    user: octo
  git clone https://x-access-token:§@github.com/corp/app.git
secret netrc: <b62:16>
  machine git.corp.io login deploy password §
  machine git.corp.io\n  login deploy\n  password §
secret pgpass: k<b62:14>
  db.corp.io:5432:app:deploy:§
secret npmrc: npm_<b62:36>
  //registry.npmjs.org/:_authToken=§
  npm config set //registry.npmjs.org/:_authToken §
secret npmrc_legacy: <hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>
  //npm.corp.io/:_authToken=§
secret pip_conf: k<b62:18>
  [global]\nindex-url = https://ci:§@pypi.corp.io/simple
  pip install --extra-index-url https://__token__:§@pypi.corp.io/simple app
secret maven: k<b62:12>-<b62:4>
  <server><id>corp</id><username>ci</username><password>§</password></server>
  <password>§</password>
secret gradle: k<b62:16>
  signing.password=§
  mavenPassword=§
  ossrhPassword = "§"
secret nuget: k<b62:20>
  <add key="ClearTextPassword" value="§" />
  dotnet nuget push app.nupkg --api-key § --source corp
secret htpasswd: $apr1$<b62:8>$<b62:22>
  admin:§
  htpasswd -nb admin x\nadmin:§
secret bcrypt: $2y$12$<b62:53>
  admin:§
  INSERT INTO users (email, pw) VALUES ('a', '§');
secret shadow: $6$<b62:12>$<b62:86>
  root:§:19700:0:99999:7:::
secret django_hash: pbkdf2_sha256$600000$<b62:22>$<b64:43>=
  password = '§'
secret set_cookie: <b64u:48>
  < Set-Cookie: session=§; Path=/; HttpOnly; Secure
  > Cookie: sessionid=§; theme=dark
  curl -b 'connect.sid=§' https://app.corp.io
secret phpsessid: <lown:26>
  Cookie: PHPSESSID=§
  curl --cookie "PHPSESSID=§" https://app.corp.io
secret csrf: <b62:64>
  Cookie: csrftoken=§; lang=de
  < set-cookie: csrftoken=§; expires=Fri
secret oauth_code: 4/0A<b64u:70>
  http://127.0.0.1:8085/?state=x&code=§&scope=email
  grant_type=authorization_code&code=§&redirect_uri=http
secret refresh_token: <b64u:90>
  {"token_type": "Bearer", "expires_in": 3599, "refresh_token": "§"}
  curl -d "grant_type=refresh_token&refresh_token=§" https://id.corp.io/token
secret slack_webhook: https://hooks.slack.com/services/T<upn:9>/B<upn:10>/<b62:24>
  curl -X POST -d '{"text":"x"}' §
  SLACK_WEBHOOK_URL=§
secret discord_webhook: https://discord.com/api/webhooks/<dig:18>/<b64u:68>
  webhook: §
secret teams_webhook: https://corp.webhook.office.com/webhookb2/<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>@<hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>/IncomingWebhook/<hex:32>/<hex:8>
  TEAMS_URL=§
secret telegram_bot: <nz:10>:AA<b64u:33>
  https://api.telegram.org/bot§/sendMessage
  TELEGRAM_BOT_TOKEN=§
secret otpauth: <b32:32>
  otpauth://totp/Corp:deploy?secret=§&issuer=Corp
  TOTP_SECRET=§
secret eth_key: 0x<hex:64>
  PRIVATE_KEY=§
  cast send --private-key § 0x0
  const wallet = new ethers.Wallet("§");
secret mnemonic: <low:5> <low:6> <low:4> <low:7> <low:5> <low:4> <low:6> <low:5> <low:8> <low:4> <low:6> <low:5>
  MNEMONIC="§"
  seed_phrase: "§"
secret wif: 5K<b62:49>
  wif: §
  bitcoin-cli importprivkey §
secret jwe: eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6<b64u:20>.<b64u:120>.<b64u:16>.<b64u:60>.<b64u:22>
  id_token=§
  received § from idp
secret postgres_url: k<b62:15>
  postgresql+asyncpg://app:§@db.corp.io:5432/app
  DATABASE_URL="postgres://app:§@10.0.0.4/app?sslmode=require"
  psql: error: connection to postgres://app:§@db/app failed
secret mongo_srv: k<b62:15>
  mongodb+srv://root:§@cluster0.ab12c.mongodb.net/?retryWrites=true
  mongosh "mongodb://root:§@localhost:27017"
secret redis_url: k<b62:24>
  redis://:§@cache.corp.io:6379/0
  rediss://default:§@eu1-x.upstash.io:6379
secret amqp_url: k<b62:12>
  amqps://svc:§@mq.corp.io/vhost
  CELERY_BROKER_URL = 'amqp://svc:§@rabbit:5672//'
secret jdbc: k<b62:12>
  jdbc:mysql://db.corp.io:3306/app?user=app&password=§&useSSL=true
  jdbc:sqlserver://db:1433;databaseName=app;user=sa;password=§;encrypt=true
secret mssql_conn: k<b62:12>#
  Server=tcp:db.corp.io,1433;Initial Catalog=app;User ID=sa;Password=§;Encrypt=True;
  Data Source=db;User Id=sa;Pwd=§;
secret kafka_sasl: k<b62:14>
  sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="svc" password="§";
  sasl.password=§
secret snowflake: k<b62:13>
  snowsql -a corp -u svc --password §
  snowflake://svc:§@corp/db
secret mysql_cli: k<b62:12>
  mysql -h db -u root -p§ app -e 'show tables'
  mysqldump --password=§ app > a.sql
  MYSQL_PWD=§ mysql -u root app
secret psql_env: k<b62:12>
  PGPASSWORD=§ psql -h db -U app
  psql "host=db user=app password=§ dbname=app"
secret sql_user: k<b62:12>!
  CREATE USER app WITH PASSWORD '§';
  ALTER USER 'root'@'localhost' IDENTIFIED BY '§';
  ALTER ROLE app LOGIN ENCRYPTED PASSWORD '§';
secret redis_cli: k<b62:20>
  redis-cli -h cache -a § ping
  requirepass §
  127.0.0.1:6379> AUTH §
secret sshpass: k<b62:12>
  sshpass -p '§' ssh root@10.0.0.4 uptime
  sshpass -p § scp a root@10.0.0.4:
secret curl_user: k<b62:12>
  curl -u admin:§ https://jenkins.corp.io/api
  curl --user 'admin:§' -X POST https://es:9200/_search
  wget --http-user=admin --http-password=§ https://x.io/a
secret git_remote: k<b62:20>
  origin  https://deploy:§@git.corp.io/app.git (fetch)
  git remote set-url origin https://oauth2:§@gitlab.com/corp/app.git
secret basic_header: <b62:34>==
  -H 'Authorization: Basic §'
  "Authorization": "Basic §"
  > authorization: Basic §
secret bearer_opaque: <b64u:43>
  Authorization: Bearer §
  headers={"Authorization": f"Bearer §"}
  http GET api.corp.io "Authorization:Bearer §"
secret x_api_key: <b62:32>
  -H "X-API-Key: §"
  > x-auth-token: §
  'PRIVATE-TOKEN': '§'
  ApiKey: §
secret code_python: k<b62:15>
  client = Client(username="svc", password="§")
  SECRET_KEY = '§'
  os.environ["DB_PASSWORD"] = "§"
  conn = psycopg2.connect("dbname=app user=app password=§")
secret code_js: k<b62:19>
  const apiKey = "§";
  auth: { user: 'svc', pass: '§' },
  process.env.API_SECRET = `§`;
secret code_go: k<b62:19>
  cfg.Password = "§"
  const apiToken string = "§"
  SecretKey: "§",
secret code_rust: k<b62:19>
  let password = "§".to_string();
  const API_KEY: &str = "§";
secret code_java: k<b62:19>
  private static final String DB_PASSWORD = "§";
  props.setProperty("db.password", "§");
  @Value("${db.password:§}")
secret code_csharp: k<b62:19>
  var credential = new NetworkCredential("svc", "§");
  public string ApiKey { get; set; } = "§";
secret code_php: k<b62:19>
  define('DB_PASSWORD', '§');
  'password' => '§',
  $dbPassword = "§";
secret code_ruby: k<b62:19>
  config.secret_key_base = '§'
  password: '§',
  ENV['API_TOKEN'] ||= "§"
secret powershell: k<b62:16>
  $password = ConvertTo-SecureString "§" -AsPlainText -Force
  [Environment]::SetEnvironmentVariable("API_TOKEN", "§")
secret dockerfile: k<b62:20>
  ENV API_TOKEN §
  ARG NPM_TOKEN=§
  docker run -e POSTGRES_PASSWORD=§ postgres
  docker build --build-arg TOKEN=§ .
secret compose: k<b62:16>
  environment:\n      POSTGRES_PASSWORD: §
  environment:\n      - MYSQL_ROOT_PASSWORD=§
secret helm: k<b62:16>
  helm upgrade app ./c --set postgresql.auth.password=§
  --set-string secrets.apiKey=§
  helm install x --set adminPassword=§,replicas=2
secret actions: k<b62:22>
  env:\n  DEPLOY_TOKEN: §
  gh secret set DEPLOY_KEY --body "§"
  ::add-mask::§
secret log_line: k<b62:18>
  2026-11-20 10:11:12 DEBUG auth: login user=svc password=§ ok
  level=info msg="connected" api_token=§ host=db
  Error: login failed for 'svc' with password '§'
  using token § for registry
secret traceback: k<b62:18>
  File "a.py", line 3, in f\n    login("svc", password="§")\nTypeError: bad
  pydantic_core.ValidationError: api_key\n  Input should be str [type=x, input_value='§', input_type=str]
secret markdown_table: k<b62:16>
  | user | password |\n|---|---|\n| svc | § |
  | API key | `§` |
  - **Password:** `§`
secret spoken: k<b62:13>!
  the admin password is §
  my api key is: § please use it
  log in as svc / §
  das Passwort lautet §
secret words_password: <First>-<dig:4>!
  password: "§"
  DB_PASSWORD=§
  PGPASSWORD='§' psql
secret ssh_key: -----BEGIN OPENSSH PRIVATE KEY-----\n<b64:70>\n<b64:70>\n<b64:70>\n<b64:40>\n-----END OPENSSH PRIVATE KEY-----
  $ cat ~/.ssh/id_ed25519\n§
  key: |\n§
secret pem_escaped: -----BEGIN PRIVATE KEY-----\\n<b64:64>\\n<b64:64>\\n<b64:64>\\n-----END PRIVATE KEY-----\\n
  "private_key": "§",
  PRIVATE_KEY="§"
secret age_key: AGE-SECRET-KEY-1<upn:58>
  §
  # public key: age1x\n§
secret wireguard: <b64:43>=
  [Interface]\nPrivateKey = §\nAddress = 10.0.0.2/32
  PresharedKey = §
secret ansible_vault_pass: k<b62:18>
  ansible_become_password: §
  ansible-playbook -e "ansible_ssh_pass=§" site.yml
secret doppler: dp.st.prd.<b62:43>
  §
  doppler run --token § -- make
secret linear: lin_api_<b62:40>
  §
  Authorization: §
secret sentry_dsn: <hex:32>
  SENTRY_DSN=https://§@o4505.ingest.sentry.io/4505
  dsn: "https://§@o12.ingest.us.sentry.io/9"
secret datadog: <hex:32>
  DD_API_KEY=§
  -H "DD-API-KEY: §"
  datadog.api_key=§
secret cloudflare: <b64u:40>
  CLOUDFLARE_API_TOKEN=§
  -H "X-Auth-Key: §"
  cf_token = "§"
secret heroku: <hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>
  HEROKU_API_KEY=§
  machine api.heroku.com\n  login a\n  password §
secret unknown_prefix: zqx_live_<b62:32>
  §
  zqx login --with §
  {"result": "§"}
secret unknown_prefix_dash: kvt-<b62:40>
  §
  Created key § (shown once)
secret unknown_v1: ory_at_<b64u:43>.<b64u:43>
  §
  GET /x?t=§
secret fly: fo1_<b64u:43>
  flyctl auth token\n§
  FLY_TOKEN=§
secret anthropic: sk-ant-api03-<b64u:93>AA
  §
  x-api-key: §
secret openai_proj: sk-proj-<b64u:74>T3BlbkFJ<b64u:74>
  §
  openai.api_key = "§"
secret stripe_restricted: rk_live_51<b62:90>
  §
  stripe listen --api-key §
secret gitlab_runner: glrt-<b64u:20>
  gitlab-runner register --token §
  §
secret digitalocean: dop_v1_<hex:64>
  §
  doctl auth init -t §
secret shopify: shpat_<hex:32>
  §
  X-Shopify-Access-Token: §
secret artifactory: AKCp<b62:69>
  §
  curl -H 'X-JFrog-Art-Api: §' https://corp.jfrog.io
secret twilio: <hex:32>
  TWILIO_AUTH_TOKEN=§
  curl -u AC<hex:32>:§ https://api.twilio.com/2010-04-01
secret sendgrid: SG.<b64u:22>.<b64u:43>
  §
  EMAIL_HOST_PASSWORD=§
secret windows_cred: k<b62:12>
  net use Z: \\\\fs01\\share § /user:CORP\\svc
  cmdkey /add:fs01 /user:svc /pass:§
  runas password=§
secret smtp: k<b62:12>
  smtp.login("svc", "§")
  smtps://svc:§@mail.corp.io:465
  smtp_pass: §
secret ldap: k<b62:12>
  ldapsearch -x -D "cn=admin" -w § -b dc=corp
  bindPassword: §
secret ftp: k<b62:12>
  ftp://deploy:§@ftp.corp.io/www
  lftp -u deploy,§ ftp.corp.io
secret openssl_pass: k<b62:12>
  openssl rsa -in a.pem -passin pass:§
  keytool -storepass § -keystore a.jks
  gpg --batch --passphrase § -d a.gpg
secret zip_pass: k<b62:12>
  RESTIC_PASSWORD=§ restic backup
  "passphrase": "§",
secret url_token: <b64u:32>
  https://app.corp.io/reset?token=§
  wss://gw.corp.io/?access_token=§&v=10
  GET /api?api_key=§ HTTP/1.1
pii email_gitlog: <first>.<last>@<dom>.com
  Author: <First> <Last> <§>\nDate:   Fri Nov 20
  git config user.email §
  git shortlog -sne\n    12\tX <§>
pii email_pkg: <last>@<dom>.io
  "author": {"name": "x", "email": "§"}
  authors = ["X <§>"]
  "author": "<First> <Last> <§> (https://x.io)"
pii email_codeowners: <first><dig:2>@<dom>.net
  *.py §
  # Contact: §
  mailto:§
pii email_plus: <first>+ci@<dom>.co.uk
  To: §
  user § not found
pii email_encoded: <first>.<last>%40<dom>.com
  https://app.corp.io/u?email=§&x=1
pii name_author: <First> <Last>
  Author: § <x@<dom>.com>
  Signed-off-by: § <x@<dom>.com>
  Co-authored-by: § <a@<dom>.org>
  Reviewed-by: § <a@<dom>.org>
pii phone_us: +1 (4<nz:2>) <nz:3>-<dig:4>
  Call § for help
  "phone": "§"
pii phone_us_dash: 4<nz:2>-<nz:3>-<dig:4>
  phone: §
  tel. §
pii phone_de: +49 30 <nz:4><dig:4>
  Tel.: §
  "mobile": "§"
pii phone_uk: +44 20 7<nz:3> <dig:4>
  Phone §
  contact §
pii phone_fr: +33 6 <nz:2> <nz:2> <nz:2> <nz:2>
  Mobile: §
pii phone_in: +91 98<nz:3> <nz:5>
  whatsapp: §
pii phone_e164: +1415<nz:7>
  "To": "§"
  sms sent to §
pii phone_jp: +81 90-<nz:4>-<nz:4>
  TEL §
pii ipv4: 8<nz:1>.<nz:2>.1<dig:2>.<nz:2>
  ssh root@§
  Connection from § port 22
  "remote_addr": "§"
  § - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200
pii ipv6: 2a01:4f8:<hex:3>9:<hex:3>7::<nz:1>
  inet6 § scope global
  listening on [§]:443
pii mac: 3c:22:fb:<hex:2>:<hex:2>:<hex:2>
  ether §
  HWaddr §
pii mac_dash: 3C-22-FB-<HEX:2>-<HEX:2>-<HEX:2>
  Physical Address. . . . . : §
pii home_unix: <first><last>
  /home/§/src/a.py
  cd ~§/app
  drwx------ 5 x x 4096 Nov 20 /home/§
pii home_mac: <first>.<last>
  /Users/§/Library/Application Support/x
  file:///Users/§/a.txt
pii home_windows: <first><nz:2>
  C:\\Users\\§\\AppData\\Local\\Temp
  /c/Users/§/code
  /mnt/c/Users/§/code
pii home_encoded: <first><last>
  ~/.claude/projects/-Users-§-code-app/a.jsonl
  ~/.claude/projects/-home-§-app
pii card_visa: 4<dig:15>
  card: §
  "number": "§"
pii iban: <iban:DE:18>
  IBAN: §
  account §
pii ssn: 5<nz:2>-<nz:2>-<nz:4>
  SSN: §
  "ssn": "§"
pii whoami_ls: <first><last>
  -rw-r--r-- 1 § staff 120 Nov 20 10:00 /Users/§/a.txt
  §@macbook ~ % pwd\n/Users/§
pii ssh_user_ip: 5<nz:1>.<nz:2>.<nz:2>.1<nz:2>
  scp a.tgz deploy@§:/srv
  nslookup x\nAddress: §
keep sha1: <hex:40>
  commit §\nAuthor
  "sha": "§"
  * [new tag] §
  rev = "§"
keep uuid: <hex:8>-<hex:4>-4<hex:3>-a<hex:3>-<hex:12>
  "sessionId": "§"
  x-request-id: §
  tenant_id = "§"
  trace § done
keep sha256: <hex:64>
  sha256:§
  checksum = "§"
  --hash=sha256:§
  §  app.tar.gz
keep sha512_int: sha512-<b64:86>==
  "integrity": "§",
  resolution: {integrity: §}
keep go_sum: h1:<b64:43>=
  golang.org/x/net v0.38.0 §
  golang.org/x/net v0.38.0/go.mod §
keep nix_path: /nix/store/<lown:32>-python3-3.11.9
  §
  §/bin/python
keep nix_hash: sha256-<b64:43>=
  hash = "§";
  cargoHash = "§";
keep etag: <hex:32>
  < ETag: "§"
  etag: W/"§"
  "ETag": "\\"§\\""
keep traceparent: 00-<hex:32>-<hex:16>-01
  traceparent: §
keep toolu: toolu_01<b62:22>
  "tool_use_id": "§"
  Unknown id §
keep msg: msg_01<b62:22>
  "id": "§", "type": "message"
keep req: req_011C<b62:20>
  request-id: §
  {"type":"error","request_id":"§"}
keep call: call_<b62:24>
  tool_call_id='§'
keep chatcmpl: chatcmpl-<b62:29>
  ChatCompletion(id='§', choices=[])
keep fc_id: fc_<hex:48>
  "id": "§"
keep rs_id: rs_<hex:48>
  "id": "§", "type": "reasoning"
keep resp_id: resp_<hex:48>
  previous_response_id=§
keep run_id: run_<b62:24>
  thread run § queued
keep version4: 12.<nz:1>.<nz:2>.<nz:3>
  "version": "§"
  chromium § installed
  AssemblyVersion("§")
keep local_ip: 10.<nz:1>.<nz:2>.<nz:2>
  ping §
  subnet §/24
keep any_ip: 0.0.0.0
  Uvicorn running on http://§:8000
  --host §
keep max_tokens: max_tokens=4096
  client.create(§, temperature=0)
keep tokenizer: AutoTokenizer.from_pretrained(model_id)
  tokenizer = §
  token=§
keep pw_type: password: str | None = None
  def login(user: str, §) -> None:
keep secret_name: secret_name="db-<low:6>"
  get_secret(§)
keep json_token: response.json()["access_token"]
  token = §
  access_token = §
keep await_token: await getAccessToken(<low:6>Config)
  const token = §;
  password: §,
keep env_js: process.env.<UP:8>_API_KEY
  apiKey: §,
  const secret = §;
keep env_go: os.Getenv("<UP:8>_TOKEN")
  token := §
  Password: §,
keep env_rs: std::env::var("<UP:8>_SECRET")?
  let secret = §;
keep shell_default: ${<UP:8>_PASSWORD:-}
  password=§
  PGPASSWORD="§"
keep bearer_var: Bearer ${<UP:6>_TOKEN}
  Authorization: §
  -H "Authorization: §"
keep bearer_tpl: Bearer {token}
  headers = {"Authorization": f"§"}
  `Authorization`: `§`
keep placeholder_angle: <your-<low:5>-token>
  TOKEN=§
  api_key: §
keep placeholder_dots: sk-...
  OPENAI_API_KEY=§
  export KEY=§
keep changeme: changeme
  password: §
  POSTGRES_PASSWORD=§
keep stars: ****************
  password: §
  token=§
keep k8s_ref: secretKeyRef:
  valueFrom:\n  §\n    name: db-credentials\n    key: password
keep gha_expr: ${{ secrets.GITHUB_TOKEN }}
  token: §
  GH_TOKEN: §
keep tf_ref: var.db_password
  password = §
  master_password = §
keep tf_random: random_password.db.result
  password = §
keep css_hash: _button_<b62:5>_12
  class="§"
  .§{color:red}
keep webpack_chunk: main.<hex:20>.chunk.js
  <script src="/static/§"></script>
keep alembic: <hex:12>
  down_revision = "§"
  Running upgrade  -> §, add users
keep migration_name: 20260911_1432_add_password_reset_token_<low:6>
  migrations/§.sql
keep model_name: claude-sonnet-4-5-20250929
  model: §
  --model §
keep long_url: https://docs.rs/tokio/latest/tokio/sync/struct.Semaphore.html#method.acquire_many_owned
  see §
keep regex_token: (?:ghp|gho)_[A-Za-z0-9]{36}
  re.compile(r"§")
  TOKEN_RE = '§'
keep import_path: com.corp.security.token.JwtTokenAuthenticationFilter<First>
  import §;
  at §.doFilter(Filter.java:42)
keep test_name: test_login_with_wrong_password_returns_401_<low:5>
  PASSED tests/test_auth.py::§
  def §(client):
keep test_epoch: 17<dig:11>
  "timestamp": §,
  Date.now() // §
keep phone_like: 5551<dig:3>
  buffer size §
  pid §
keep order_no: 2026<dig:8>
  build § finished
  job id §
keep float_num: 0.<dig:12>
  loss: §
  {"score": §}
keep b64_svg: PHN2ZyB4bWxucz0i<b64:200>
  url("data:image/svg+xml;base64,§")
keep sourcemap: AAAA,SAAS,<UP:4>,CAAC,<UP:5>,GAAG
  "mappings": "§"
keep pub_key: ssh-rsa AAAAB3NzaC1yc2E<b64:340>
  § deploy@ci
keep gpg_fpr: <HEX:40>
  gpg: key fingerprint §
  Primary key fingerprint: §
keep s3_arn: arn:aws:secretsmanager:eu-west-1:<dig:12>:secret:prod/db-<b62:6>
  SecretId: §
  aws secretsmanager get-secret-value --secret-id §
keep docker_img: ghcr.io/corp/app@sha256:<hex:64>
  image: §
keep ctr_id: <hex:12>
  §   postgres:16   "docker-entrypoint"   2 hours ago
keep lock_yarn: npm:<low:8>@^<nz:1>.<nz:1>.<nz:1>
  resolution: "§"
keep pytest_param: test_x[password-<low:6>]
  tests/a.py::§ PASSED
keep field_doc: password (str): The user's password
  Args:\n    §
keep error_pw: password authentication failed for user "app"
  FATAL:  §
keep token_err: Unexpected token '<' at position 0
  SyntaxError: §
keep count_tokens: tokens: 128374
  total §
  usage {"input_tokens": 4, "§"}
keep pw_label: passwordResetTokenExpiresAt
  § DateTime?
  user.§ = null
keep i18n: Password must be at least 8 characters
  "password_hint": "§",
  "errors.password": "§"
keep html_input: type="password" name="password" autocomplete="current-password"
  <input § />
keep mail_example: jane.doe@example.com
  email: §
  "§"
keep mail_at_version: lodash@4.17.<nz:2>
  npm ls\n└── §
keep decorator: @app.route
  §("/login")
keep git_ssh: git@gitlab.com:corp/<low:6>.git
  origin  § (fetch)
keep user_generic: /home/ubuntu/app
  cd §
keep object_id: <hex:24>
  ObjectId("§")
  "_id": {"$oid": "§"}
keep ulid: 01J<upn:23>
  "id": "§"
keep xcode_uuid: <HEX:24>
  § /* AppDelegate.swift in Sources */
keep snowflake_id: 1<dig:17>
  channel §
keep cache_key: node-cache-Linux-x64-npm-<hex:64>
  Cache restored from key: §
  key: §
keep pip_wheel: torch-2.9.0-cp311-cp311-manylinux_2_28_x86_64.whl
  Downloading § (900 MB)
keep gomod_pseudo: v0.0.0-20260911143205-<hex:12>
  golang.org/x/exp §
keep stripe_id: cus_<b62:14>
  customer §
keep aws_id: vpc-0<hex:16>
  "VpcId": "§"
keep tls_cert: -----BEGIN CERTIFICATE-----\n<b64:64>\n<b64:64>\n-----END CERTIFICATE-----
  §
"""  # noqa: E501


def _parsed(text: str) -> tuple[Kind, ...]:
    kinds: list[tuple[str, str, str, list[str]]] = []
    for line in text.strip("\n").split("\n"):
        if line.startswith("  "):
            kinds[-1][3].append(_written(line[2:]))
        else:
            head, _, value = line.partition(": ")
            klass, name = head.split(" ")
            kinds.append((name, klass, _written(value), []))
    return tuple(Kind(name, klass, value, tuple(contexts)) for name, klass, value, contexts in kinds)


def _written(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\0", "\\")


SECOND = _parsed(_KINDS)


def halves(kinds: Sequence[Kind], seed: str = "second 2026-11-21") -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """Return the kinds that rules may be tuned on, and those that are only counted."""
    rng = random.Random(seed)
    tuned = {kind.name for klass in ("secret", "pii", "keep") for kind in _half(kinds, klass, rng)}
    return tuple(k for k in kinds if k.name in tuned), tuple(k for k in kinds if k.name not in tuned)


def _half(kinds: Sequence[Kind], klass: str, rng: random.Random) -> list[Kind]:
    of_class = [kind for kind in kinds if kind.klass == klass]
    return rng.sample(of_class, len(of_class) // 2)


TUNED, UNSEEN = halves(SECOND)

_CARRIERS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.split("\n"), 41)),
    lambda text: "\n".join(f"+{line}" for line in text.split("\n")),
    lambda text: json.dumps({"stdout": f"ok\n{text}\n", "code": 0}),
    lambda text: "\n".join(f"    {line}" for line in text.split("\n")),
    lambda text: f"Here it is:\n\n```\n{text}\n```\n",
    lambda text: f"\x1b[36m{text}\x1b[0m",
)


def second_plants(kinds: Sequence[Kind], seed: int, num_each: int = 4) -> list[Plant]:
    """Draw values of every kind, each in one of its contexts, carried as a tool shows text."""
    rng = random.Random(f"second {seed}")
    return [_plant(kind, i, rng) for kind in kinds for i in range(num_each)]


def _plant(kind: Kind, number: int, rng: random.Random) -> Plant:
    value = luhn_card("4", 16, rng) if kind.name == "card_visa" else fill(kind.value, rng)
    context = fill(kind.contexts[number % len(kind.contexts)], rng)
    return Plant(kind.name, kind.klass, value, rng.choice(_CARRIERS)(context.replace("§", value)))
