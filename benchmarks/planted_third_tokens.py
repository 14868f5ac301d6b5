"""The tokens of the third set, by the shapes their makers document.

A value is only what must not be read; its surroundings stay out of it.
"""

from __future__ import annotations

from benchmarks.planted_kinds import Kind

# A token with a shape of its own may stand anywhere, under a name that tells nothing.
ANYWHERE = (
    "export «var»_TOKEN=§",
    '«word»_token: "§"',
    "const client = new Client({ auth: '§', retries: «num 1» })",
    "+ curl -sSf -H 'Authorization: Bearer §' https://api.«domain»/v2/«word»",
    'client = «camel 2»("§", timeout=«num 2»)',
    "I pasted the token § into the settings page and it still says 401",
    "[«of debug|info|warn»] «word»: using credential § for «host»",
    '{"name": "«word»", "value": "§", "scope": "all"}',
    "  - name: «var»\n    value: §\n",
    "echo § | «word» login --stdin",
    "| «word» | `§` | «word» |",
    "«word»=§&«word»=«num 3»",
    "ARG «var»=§",
    "# old one, rotate: §",
    "   «word» = '§' // TODO move to env",
    "Error: request to https://«host»/«word» failed, headers: { 'x-«word»-token': '§' }",
)


def _token(name: str, value: str, *contexts: str) -> Kind:
    return Kind(f"third_{name}", "secret", value, contexts or ANYWHERE)


TOKENS: tuple[Kind, ...] = (
    _token("github_classic", "«checked ghp_»"),
    _token("github_oauth", "«checked gho_»", *ANYWHERE, "github.com:\n    user: «user»\n    oauth_token: §\n"),
    _token("github_server", "«checked ghs_»", "git clone https://x-access-token:§@github.com/«word»/«word».git"),
    _token("github_fine", "github_pat_«b62 22»_«b62 59»"),
    _token("gitlab_personal", "glpat-«b64u 20»"),
    _token("gitlab_routable", "glpat-«b64u 32».01.«b36 9»"),
    _token(
        "gitlab_runner", "glrt-«b64u 20»", "gitlab-runner register --url https://«host» --token § --executor docker"
    ),
    _token("gitlab_deploy", "gldt-«b64u 20»", "docker login -u gitlab+deploy-token-«num 4» -p § registry.«domain»"),
    _token("bitbucket_app", "ATBB«b62 28»«HEX 8»"),
    _token(
        "atlassian",
        "ATATT3xFfGF0«b64u 171»=«HEX 8»",
        "curl -u «email»:§ https://«word».atlassian.net/rest/api/3/myself",
    ),
    _token("aws_key_id", "AKIA«B32 16»", *ANYWHERE, "aws_access_key_id = §"),
    _token("aws_temp_key_id", "ASIA«B32 16»", "export AWS_ACCESS_KEY_ID=§", '"AccessKeyId": "§",'),
    _token(
        "aws_secret",
        "«b64 40»",
        "aws_secret_access_key = §",
        "AWS_SECRET_ACCESS_KEY=§ terraform plan",
        '    "SecretAccessKey": "§",',
        "AWS Secret Access Key [None]: §",
    ),
    _token("aws_session", "IQoJb3JpZ2luX2Vj«b64 300»==", "export AWS_SESSION_TOKEN=§", '    "SessionToken": "§",'),
    _token(
        "aws_presigned", "«hex 64»", "https://«word».s3.amazonaws.com/«word».zip?X-Amz-Expires=3600&X-Amz-Signature=§"
    ),
    _token("bedrock_key", "ABSKQmVkcm9ja0FQSUtleS«b64 108»", *ANYWHERE),
    _token("openai_legacy", "sk-«b62 20»T3BlbkFJ«b62 20»"),
    _token("openai_project", "sk-proj-«b64u 74»T3BlbkFJ«b64u 74»"),
    _token("anthropic_api", "sk-ant-api03-«b64u 93»AA"),
    _token(
        "anthropic_oauth", "sk-ant-oat01-«b64u 93»AA", *ANYWHERE, '{"claudeAiOauth":{"accessToken":"§","scopes":[]}}'
    ),
    _token("huggingface", "hf_«abc 34»"),
    _token("groq", "gsk_«b62 52»"),
    _token("xai", "xai-«b62 80»"),
    _token("openrouter", "sk-or-v1-«hex 64»"),
    _token("perplexity", "pplx-«b62 48»"),
    _token("replicate", "r8_«b62 37»"),
    _token("nvidia", "nvapi-«b64u 64»"),
    _token("cerebras", "csk-«b36 48»"),
    _token("deepseek", "sk-«hex 32»"),
    _token("together_named", "«hex 64»", "TOGETHER_API_KEY=§", 'Together(api_key="§")'),
    _token("mistral_named", "«b62 32»", 'os.environ["MISTRAL_API_KEY"] = "§"', "MISTRAL_API_KEY=§"),
    _token("cohere_named", "«b62 40»", "cohere.Client('§')", "export CO_API_KEY=§"),
    _token(
        "wandb_named",
        "«hex 40»",
        "wandb login §",
        "WANDB_API_KEY: §",
        "machine api.wandb.ai\n  login user\n  password §\n",
    ),
    _token("langsmith", "lsv2_pt_«hex 32»_«hex 10»"),
    _token("langfuse", "sk-lf-«uuid»"),
    _token("pinecone", "pcsk_«b62 5»_«b62 63»"),
    _token("tavily", "tvly-dev-«b62 32»"),
    _token("e2b", "e2b_«hex 40»"),
    _token(
        "modal_secret", "as-«b62 22»", "modal token set --token-id ak-«b62 22» --token-secret §", 'token_secret = "§"'
    ),
    _token("firecrawl", "fc-«hex 32»"),
    _token("elevenlabs", "sk_«hex 48»"),
    _token("stripe_live", "sk_live_51«b62 97»"),
    _token("stripe_restricted", "rk_live_«b62 24»"),
    _token("stripe_webhook", "whsec_«b62 32»"),
    _token("slack_bot", "xoxb-«num 12»-«num 13»-«b62 24»"),
    _token("slack_user", "xoxp-«num 12»-«num 12»-«num 13»-«hex 32»"),
    _token("slack_app", "xapp-1-A0«B36 9»-«num 13»-«hex 64»"),
    _token("slack_hook", "«b62 24»", "https://hooks.slack.com/services/T0«B36 8»/B0«B36 9»/§"),
    _token("discord_hook", "«b64u 68»", "https://discord.com/api/webhooks/1«num 18»/§"),
    _token("discord_bot", "MT«b62 24».G«b64u 5».«b64u 38»"),
    _token("telegram_bot", "«num 1 5-7»«num 9»:AA«b64u 33»", *ANYWHERE, "https://api.telegram.org/bot§/sendMessage"),
    _token(
        "teams_hook", "«hex 32»", "https://«word».webhook.office.com/webhookb2/«uuid»@«uuid»/IncomingWebhook/§/«uuid»"
    ),
    _token(
        "twilio_named",
        "«hex 32»",
        "TWILIO_AUTH_TOKEN=§",
        'twilio.NewClient("AC«hex 32»", "§")',
        "curl -u AC«hex 32»:§ https://api.twilio.com/",
    ),
    _token("sendgrid", "SG.«b64u 22».«b64u 43»"),
    _token(
        "mailgun", "key-«hex 32»", *ANYWHERE, "curl -s --user 'api:§' https://api.mailgun.net/v3/mg.«domain»/messages"
    ),
    _token("mailchimp", "«hex 32»-us«num 1 1-9»"),
    _token("postmark_header", "«uuid»", "X-Postmark-Server-Token: §"),
    _token("resend", "re_«b62 8»_«b62 24»"),
    _token("brevo", "xkeysib-«hex 64»-«b62 16»"),
    _token(
        "google_api",
        "AIza«b64u 35»",
        *ANYWHERE,
        "GET https://maps.googleapis.com/maps/api/geocode/json?key=§&address=«word»",
    ),
    _token("google_access", "ya29.a0A«b64u 160»", *ANYWHERE, "$ gcloud auth print-access-token\n§"),
    _token("google_refresh", "1//0«b64u 80»", '"refresh_token": "§",', "refresh_token=§&grant_type=refresh_token"),
    _token("google_client_secret", "GOCSPX-«b64u 28»"),
    _token(
        "gcp_key_json",
        "«body flat»",
        '"private_key": "-----BEGIN PRIVATE KEY-----\\n§\\n-----END PRIVATE KEY-----\\n",',
    ),
    _token(
        "azure_storage",
        "«b64 86»==",
        "DefaultEndpointsProtocol=https;AccountName=«word»;AccountKey=§;EndpointSuffix=core.windows.net",
    ),
    _token(
        "azure_client", "«b62 3»8Q~«b64u 34»", *ANYWHERE, "az login --service-principal -u «uuid» -p § --tenant «uuid»"
    ),
    _token(
        "azure_sas",
        "«b62 40»%2B«b62 2»%3D",
        "https://«word».blob.core.windows.net/«word»?sv=2024-11-04&ss=b&se=2027-01-01&sp=rl&sig=§",
    ),
    _token(
        "azure_bus",
        "«b64 43»=",
        "Endpoint=sb://«word».servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=§",
    ),
    _token("azure_cosmos", "«b64 86»==", "AccountEndpoint=https://«word».documents.azure.com:443/;AccountKey=§;"),
    _token("azure_function", "«b64u 54»==", "https://«word».azurewebsites.net/api/«word»?code=§"),
    _token(
        "azure_openai_header", "«hex 32»", "curl https://«word».openai.azure.com/openai/deployments -H 'api-key: §'"
    ),
    _token("cloudflare_named", "«b64u 40»", "CLOUDFLARE_API_TOKEN=§ npx wrangler deploy", "CF_API_TOKEN: §"),
    _token("cloudflare_global", "«hex 37»", "-H 'X-Auth-Email: «email»' -H 'X-Auth-Key: §'"),
    _token("digitalocean", "dop_v1_«hex 64»"),
    _token(
        "heroku_uuid", "«uuid»", "export HEROKU_API_KEY=§", "machine api.heroku.com\n  login «email»\n  password §\n"
    ),
    _token("vercel_named", "«b62 24»", "vercel --prod --token §", "VERCEL_TOKEN=§"),
    _token("netlify", "nfp_«b62 36»"),
    _token("fly", "FlyV1 fm2_lJPE«b64 220»", "FLY_API_TOKEN='§' fly deploy", "Authorization: §"),
    _token("supabase_pat", "sbp_«hex 40»"),
    _token("supabase_secret", "sb_secret_«b64u 22»_«b64u 8»"),
    _token(
        "neon_url",
        "npg_«b62 12»",
        "postgresql://«word»_owner:§@ep-«word»-«b36 8».us-east-2.aws.neon.tech/«word»?sslmode=require",
    ),
    _token("planetscale", "pscale_tkn_«b64u 43»"),
    _token("doppler", "dp.pt.«b62 43»"),
    _token(
        "databricks", "dapi«hex 32»", *ANYWHERE, "[DEFAULT]\nhost = https://«word».cloud.databricks.com\ntoken = §\n"
    ),
    _token("npm", "«checked npm_»", *ANYWHERE, "//registry.npmjs.org/:_authToken=§"),
    _token("npm_legacy", "«uuid»", "//npm.«domain»/:_authToken=§"),
    _token("npm_auth", "«b64of robot»", "//«host»/repository/npm/:_auth=§", "_auth = §\nalways-auth = true\n"),
    _token("pypi", "pypi-AgEIcHlwaS5vcmc«b64u 150»", *ANYWHERE, "[pypi]\nusername = __token__\npassword = §\n"),
    _token("rubygems", "rubygems_«hex 48»", *ANYWHERE, "---\n:rubygems_api_key: §\n"),
    _token("crates", "cio«b62 32»", '[registry]\ntoken = "§"\n', "cargo login §"),
    _token("nuget", "oy2«b36 43»", "dotnet nuget push *.nupkg -k § -s https://api.nuget.org/v3/index.json"),
    _token("docker_pat", "dckr_pat_«b64u 27»"),
    _token(
        "docker_config",
        "«b64of robot»",
        '{"auths": {"ghcr.io": {"auth": "§"}}}',
        '"https://index.docker.io/v1/": {\n  "auth": "§"\n}',
    ),
    _token(
        "artifactory", "AKCp«b62 69»", *ANYWHERE, "curl -H 'X-JFrog-Art-Api: §' -T a.tgz https://«host»/artifactory/"
    ),
    _token("grafana_account", "glsa_«b62 32»_«hex 8»"),
    _token("newrelic", "NRAK-«B36 27»"),
    _token(
        "datadog_named",
        "«hex 32»",
        "DD_API_KEY=§",
        "-H 'DD-API-KEY: §'",
        "datadog:\n  apiKey: §\n  site: datadoghq.eu\n",
    ),
    _token("sentry_org", "sntrys_eyJpYXQiOjE3«b64u 130»_«b64 43»"),
    _token("sentry_dsn_secret", "«hex 32»", "SENTRY_DSN=https://«hex 32»:§@sentry.«domain»/«num 2»"),
    _token("dynatrace", "dt0c01.«B32 24».«B32 64»"),
    _token("splunk", "«uuid»", "curl -k https://«host»:8088/services/collector -H 'Authorization: Splunk §'"),
    _token("elastic_apikey", "«b64 58»==", "-H 'Authorization: ApiKey §'"),
    _token("pagerduty_named", "«b64u 20»", "Authorization: Token token=§", "PAGERDUTY_API_KEY=§"),
    _token("mapbox", "sk.eyJ1Ijoi«b62 60».«b64u 22»"),
    _token("linear", "lin_api_«b62 40»"),
    _token("notion", "ntn_«num 11»«b62 35»"),
    _token("airtable", "pat«b62 14».«hex 64»"),
    _token("figma", "figd_«b64u 40»"),
    _token("shopify", "shpat_«hex 32»"),
    _token("square", "EAAA«b64u 60»"),
    _token("postman", "PMAK-«hex 24»-«hex 34»"),
    _token("hubspot", "pat-na1-«uuid»"),
    _token("tailscale", "tskey-auth-k«b62 10»CNTRL-«b62 32»", *ANYWHERE, "sudo tailscale up --authkey §"),
    _token("ngrok_named", "2«b62 26»_«b62 21»", "ngrok config add-authtoken §", "authtoken: §\nversion: 3\n"),
    _token(
        "vault",
        "hvs.CAES«b64u 90»",
        *ANYWHERE,
        "Key                  Value\n---                  -----\ntoken                §\n"
        "token_accessor       «b62 24»\n",
    ),
    _token(
        "terraform_cloud", "«b62 14».atlasv1.«b64u 67»", *ANYWHERE, 'credentials "app.terraform.io" {\n  token = "§"\n}'
    ),
    _token("pulumi", "pul-«hex 40»"),
    _token("buildkite", "bkua_«hex 40»"),
    _token("sonar", "sqp_«hex 40»", *ANYWHERE, "mvn sonar:sonar -Dsonar.token=§"),
    _token("codecov", "«uuid»", "CODECOV_TOKEN=§ ./codecov upload", "  token: § # codecov\n"),
    _token("age", "AGE-SECRET-KEY-1«bech 58»"),
    _token("wireguard", "«b64 43»=", "[Interface]\nAddress = 10.8.0.2/24\nPrivateKey = §\nListenPort = 51820\n"),
    _token("eth_key", "0x«hex 64»", "PRIVATE_KEY=§ npx hardhat run deploy.ts", "cast send --private-key § 0x«hex 40»"),
    _token("seed_words", "«seedphrase»", 'MNEMONIC="§"', 'accounts: { mnemonic: "§" },'),
    _token(
        "kubeadm",
        "«b36 6».«b36 16»",
        "kubeadm join 10.0.0.4:6443 --token § --discovery-token-ca-cert-hash sha256:«hex 64»",
    ),
    _token("jwt", "«jwt»", *ANYWHERE, "Cookie: theme=dark; session=§; lang=en"),
    _token("ssh_key", "«body openssh»", "-----BEGIN OPENSSH PRIVATE KEY-----\n§\n-----END OPENSSH PRIVATE KEY-----"),
    _token("rsa_key", "«body»", "-----BEGIN RSA PRIVATE KEY-----\n§\n-----END RSA PRIVATE KEY-----"),
    _token("pkcs8_key_flat", "«body flat»", 'TLS_KEY="-----BEGIN PRIVATE KEY-----\\n§\\n-----END PRIVATE KEY-----"'),
    _token(
        "pgp_key",
        "«blob b64 64 9»\n=«b64 4»",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n§\n-----END PGP PRIVATE KEY BLOCK-----",
    ),
    _token(
        "ppk",
        "«blob b64 64 2»",
        "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: «word»\n"
        "Public-Lines: 1\n«b64 64»\nPrivate-Lines: 2\n§\nPrivate-MAC: «hex 64»",
    ),
    _token(
        "jwk_private", "«b64u 43»", '{"kty":"EC","crv":"P-256","x":"«b64u 43»","y":"«b64u 43»","d":"§","use":"sig"}'
    ),
    _token("kubeconfig_key", "«b64of key»", "users:\n- name: «word»-admin\n  user:\n    client-key-data: §\n"),
    _token("wrapped_jwt", "«jwt»", "\f2026-03-04 11:02:17 gateway accepted session with bearer token §"),
    _token("wrapped_fine_pat", "github_pat_«b62 22»_«b62 59»", "\fremote: authentication with the stored credential §"),
    _token(
        "wrapped_anthropic",
        "sk-ant-api03-«b64u 93»AA",
        "\f$ echo $ANTHROPIC_API_KEY; echo the value in this shell is: §",
    ),
)
