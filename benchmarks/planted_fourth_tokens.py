"""Tokens of vendors for the fourth planted set: those known by their shape, and those that only a name tells."""

from __future__ import annotations

from benchmarks.planted_kinds import Kind

ASSIGNED = (
    "NAME=§",
    'export NAME="§"',
    "PORT=8080\nNAME=§\nDEBUG=false",
    "environment:\n  NAME: §\n  LOG_LEVEL: info",
    '{\n  "mcpServers": {"srv": {"command": "npx", "env": {"NAME": "§"}}}\n}',
    "docker run --rm -e NAME=§ -p 80:80 app:1.2",
    "    environment:\n      - NODE_ENV=production\n      - NAME=§",
    'os.environ["NAME"] = "§"',
    "process.env.NAME = '§';",
    'const LOWER = "§";',
    '[deploy]\nLOWER = "§"\nregion = "eu"',
    "heroku config:set NAME=§ --app «word»",
    'FROM node:22\nENV NAME=§\nCMD ["node"]',
    '<add key="NAME" value="§" />',
    "$env:NAME = '§'",
    "NAME='§' npm run deploy",
    'declare -x NAME="§"',
    "        LOWER='§',",
    "NAME = os.getenv('NAME', '§')",
    '          - name: NAME\n            value: "§"',
    "-NAME=changeme\n+NAME=§",
    "The NAME is § and it works in staging.",
)
SHAPED = (
    "I pasted § into the settings page, please use it for the deploy.",
    "curl -s -H 'Authorization: Bearer §' https://api.«host».com/v1/me",
    "§",
    "INFO using credential § for project «word»",
    '{"ok": true, "token": "§", "expires_in": 3600}',
    "cli login --token § --non-interactive",
    "| production | `§` | «word» |",
    "# TODO: rotate § before the release",
    '    client = Client("§", timeout=30)',
    "401 Unauthorized: Incorrect API key provided: §. You can find your key in the console.",
    "echo '§' | gh secret set NAME --repo acme/«word»",
    "https://api.«host».com/v2/items?limit=5&token=§",
    "- cred: §\n- owner: platform",
)


def _contexts(templates: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(one.replace("NAME", name).replace("LOWER", name.lower()) for one in templates)


def _kinds(table: str, shared: tuple[str, ...]) -> tuple[Kind, ...]:
    rows = [[cell.strip() for cell in row.split(" :: ")] for row in table.strip().splitlines()]
    return tuple(Kind(f"4 {name}", "secret", value, _contexts(shared, var)) for name, value, var in rows)


_SHAPED_TABLE = """
openai project :: sk-proj-«url 74»T3BlbkFJ«url 74» :: OPENAI_API_KEY
openai legacy :: sk-«an 20»T3BlbkFJ«an 20» :: OPENAI_API_KEY
openai service account :: sk-svcacct-«url 58»T3BlbkFJ«url 58» :: OPENAI_KEY
openai admin :: sk-admin-«url 58»T3BlbkFJ«url 58» :: OPENAI_ADMIN_KEY
anthropic api :: sk-ant-api03-«url 93»AA :: ANTHROPIC_API_KEY
anthropic oauth :: sk-ant-oat01-«url 93»AA :: CLAUDE_CODE_OAUTH_TOKEN
anthropic admin :: sk-ant-admin01-«url 93»AA :: ANTHROPIC_ADMIN_KEY
anthropic session :: sk-ant-sid01-«url 86»-«url 6»AA :: CLAUDE_SESSION
github classic :: ghp_«an 36» :: GITHUB_TOKEN
github oauth :: gho_«an 36» :: GH_TOKEN
github user to server :: ghu_«an 36» :: GH_TOKEN
github actions :: ghs_«an 36» :: GITHUB_TOKEN
github refresh :: ghr_«an 76» :: GH_REFRESH
github fine-grained :: github_pat_11«up 20»_«an 59» :: GITHUB_PAT
gitlab pat :: glpat-«url 20» :: GITLAB_TOKEN
gitlab routable pat :: glpat-«url 27».01.«lo 9» :: GITLAB_TOKEN
gitlab runner :: glrt-«url 20» :: RUNNER_TOKEN
gitlab deploy :: gldt-«url 20» :: CI_DEPLOY_TOKEN
gitlab trigger :: glptt-«hex 40» :: TRIGGER
gitlab job :: glcbt-64_«url 20» :: CI_JOB_TOKEN
aws access id :: AKIA«b32 16» :: AWS_ACCESS_KEY_ID
aws temporary id :: ASIA«b32 16» :: AWS_ACCESS_KEY_ID
bedrock key :: ABSKQmVkcm9ja0FQSUtleS«b64 110» :: AWS_BEARER_TOKEN_BEDROCK
google api :: AIza«url 35» :: GEMINI_API_KEY
google access :: ya29.a0«url 160» :: GOOGLE_ACCESS
google refresh :: 1//0«an 1»«url 60» :: GOOGLE_REFRESH_TOKEN
google client secret :: GOCSPX-«url 28» :: GOOGLE_CLIENT_SECRET
azure client secret :: «an 3»8Q~«an 34» :: AZURE_CLIENT_SECRET
slack bot :: xoxb-«num 12»-«num 13»-«an 24» :: SLACK_BOT_TOKEN
slack user :: xoxp-«num 12»-«num 12»-«num 13»-«hex 32» :: SLACK_TOKEN
slack app :: xapp-1-A0«up 9»-«num 13»-«hex 64» :: SLACK_APP_TOKEN
slack rotating :: xoxe.xoxp-1-«an 163» :: SLACK_TOKEN
slack refresh :: xoxe-1-«an 146» :: SLACK_REFRESH_TOKEN
slack webhook :: https://hooks.slack.com/services/T«up 10»/B«up 10»/«an 24» :: SLACK_WEBHOOK_URL
stripe live :: sk_live_51«an 97» :: STRIPE_SECRET_KEY
stripe short live :: sk_live_«an 24» :: STRIPE_KEY
stripe restricted :: rk_live_51«an 97» :: STRIPE_RESTRICTED
stripe test :: sk_test_51«an 97» :: STRIPE_SECRET_KEY
stripe webhook :: whsec_«an 32» :: STRIPE_WEBHOOK_SECRET
twilio api :: SK«hex 32» :: TWILIO_API_KEY
sendgrid :: SG.«url 22».«url 43» :: SENDGRID_API_KEY
hugging face :: hf_«alpha 34» :: HF_TOKEN
hugging face org :: api_org_«alpha 34» :: HF_TOKEN
npm :: npm_«an 36» :: NPM_TOKEN
pypi :: pypi-AgEIcHlwaS5vcmc«url 150» :: TWINE_PASSWORD
docker pat :: dckr_pat_«url 27» :: DOCKER_TOKEN
docker org :: dckr_oat_«url 32» :: DOCKER_TOKEN
discord bot :: MT«an 24».G«an 5».«url 38» :: DISCORD_TOKEN
discord webhook :: https://discord.com/api/webhooks/«num 19»/«url 68» :: DISCORD_WEBHOOK
telegram bot :: «nz 1»«num 9»:AA«url 33» :: TELEGRAM_BOT_TOKEN
shopify admin :: shpat_«hex 32» :: SHOPIFY_TOKEN
shopify shared :: shpss_«hex 32» :: SHOPIFY_API_SECRET
new relic user :: NRAK-«up 27» :: NEW_RELIC_USER_KEY
new relic licence :: «hex 32»FFFFNRAL :: NEW_RELIC_LICENSE_KEY
sentry org :: sntrys_eyJpYXQiOjE3«b64 120»_«b64 43» :: SENTRY_AUTH_TOKEN
sentry user :: sntryu_«hex 64» :: SENTRY_AUTH_TOKEN
linear :: lin_api_«an 40» :: LINEAR_API_KEY
notion old :: secret_«an 43» :: NOTION_TOKEN
notion new :: ntn_«num 11»«an 35» :: NOTION_TOKEN
supabase access :: sbp_«hex 40» :: SUPABASE_ACCESS_TOKEN
supabase secret :: sb_secret_«url 22»_«url 8» :: SUPABASE_SECRET_KEY
supabase service role :: «supabase» :: SUPABASE_SERVICE_ROLE_KEY
vercel blob :: vercel_blob_rw_«an 16»_«an 30» :: BLOB_READ_WRITE_TOKEN
vercel new :: vcp_«an 56» :: VERCEL_TOKEN
cloudflare origin ca :: v1.0-«hex 24»-«hex 146» :: CF_ORIGIN_CA_KEY
digitalocean :: dop_v1_«hex 64» :: DIGITALOCEAN_TOKEN
digitalocean refresh :: dor_v1_«hex 64» :: DO_REFRESH
databricks :: dapi«hex 32»-«in 2-3» :: DATABRICKS_TOKEN
postman :: PMAK-«hex 24»-«hex 34» :: POSTMAN_API_KEY
mapbox secret :: sk.eyJ1Ijoi«an 40».«url 22» :: MAPBOX_TOKEN
mailgun old :: key-«hex 32» :: MAILGUN_API_KEY
mailchimp :: «hex 32»-us«in 2-21» :: MAILCHIMP_KEY
netlify :: nfp_«an 36» :: NETLIFY_AUTH_TOKEN
heroku :: HRKU-AA«url 58» :: HEROKU_API_KEY
fly :: fm2_lJPECAAA«b64 140» :: FLY_API_TOKEN
render :: rnd_«an 28» :: RENDER_API_KEY
planetscale token :: pscale_tkn_«url 43» :: PLANETSCALE_TOKEN
neon password :: npg_«an 12» :: PGPASSWORD
grafana service :: glsa_«an 32»_«hex 8» :: GRAFANA_TOKEN
grafana cloud :: glc_eyJvIjoi«b64 100»= :: GRAFANA_CLOUD_TOKEN
doppler :: dp.pt.«an 43» :: DOPPLER_TOKEN
vault service :: hvs.CAES«url 90» :: VAULT_TOKEN
terraform cloud :: «an 14».atlasv1.«url 67» :: TFE_TOKEN
pulumi :: pul-«hex 40» :: PULUMI_ACCESS_TOKEN
circleci :: CCIPAT_«an 22»_«hex 40» :: CIRCLE_TOKEN
buildkite :: bkua_«hex 40» :: BUILDKITE_TOKEN
sonar :: squ_«hex 40» :: SONAR_TOKEN
artifactory :: AKCp8«an 68» :: ARTIFACTORY_API_KEY
nuget :: oy2«lo 43» :: NUGET_API_KEY
rubygems :: rubygems_«hex 48» :: GEM_HOST_API_KEY
crates :: cio«an 32» :: CARGO_REGISTRY_TOKEN
figma :: figd_«url 40» :: FIGMA_TOKEN
airtable :: pat«an 14».«hex 64» :: AIRTABLE_TOKEN
asana :: 2/«num 16»/«num 16»:«hex 32» :: ASANA_TOKEN
atlassian :: ATATT3xFfGF0«url 171»=«HEX 8» :: JIRA_API_TOKEN
bitbucket app :: ATBB«an 28»«HEX 8» :: BITBUCKET_APP_PASSWORD
okta :: 00«url 40» :: OKTA_API_TOKEN
square :: EAAA«url 60» :: SQUARE_ACCESS_TOKEN
plaid :: access-production-«uuid» :: PLAID_ACCESS_TOKEN
razorpay :: rzp_live_«an 14» :: RAZORPAY_KEY
hubspot :: pat-na1-«uuid» :: HUBSPOT_TOKEN
brevo :: xkeysib-«hex 64»-«an 16» :: BREVO_API_KEY
resend :: re_«an 8»_«an 24» :: RESEND_API_KEY
pinecone :: pcsk_«an 6»_«an 63» :: PINECONE_API_KEY
replicate :: r8_«an 37» :: REPLICATE_API_TOKEN
groq :: gsk_«an 52» :: GROQ_API_KEY
xai :: xai-«an 80» :: XAI_API_KEY
perplexity :: pplx-«an 48» :: PERPLEXITY_API_KEY
openrouter :: sk-or-v1-«hex 64» :: OPENROUTER_API_KEY
deepseek :: sk-«hex 32» :: DEEPSEEK_API_KEY
langsmith :: lsv2_pt_«hex 32»_«hex 10» :: LANGSMITH_API_KEY
langfuse :: sk-lf-«uuid» :: LANGFUSE_SECRET_KEY
tavily :: tvly-dev-«an 32» :: TAVILY_API_KEY
nvidia :: nvapi-«url 64» :: NVIDIA_API_KEY
firecrawl :: fc-«hex 32» :: FIRECRAWL_API_KEY
voyage :: pa-«url 43» :: VOYAGE_API_KEY
wandb new :: wandb_v1_«an 77» :: WANDB_API_KEY
tailscale :: tskey-auth-k«an 11»CNTRL-«an 32» :: TS_AUTHKEY
onepassword :: ops_eyJzaWduSW5BZGRyZXNz«b64 200» :: OP_SERVICE_ACCOUNT_TOKEN
age identity :: AGE-SECRET-KEY-1«bech 58» :: SOPS_AGE_KEY
posthog personal :: phx_«an 43» :: POSTHOG_PERSONAL_KEY
launchdarkly :: sdk-«uuid» :: LD_SDK_KEY
jwt :: «jwt» :: SESSION_JWT
cerebras :: csk-«lo 48» :: CEREBRAS_API_KEY
"""

_NAMED_TABLE = """
aws secret :: «b64 40» :: AWS_SECRET_ACCESS_KEY
aws session :: IQoJb3JpZ2luX2Vj«b64 300»== :: AWS_SESSION_TOKEN
azure openai :: «hex 32» :: AZURE_OPENAI_API_KEY
azure foundry :: «an 52»JQQJ99«up 12»AC«an 12» :: AZURE_OPENAI_KEY
azure storage :: «b64 86»== :: AZURE_STORAGE_KEY
azure devops :: «lo 52» :: AZURE_DEVOPS_EXT_PAT
twilio auth :: «hex 32» :: TWILIO_AUTH_TOKEN
datadog api :: «hex 32» :: DD_API_KEY
datadog app :: «hex 40» :: DD_APP_KEY
algolia admin :: «hex 32» :: ALGOLIA_ADMIN_KEY
vercel :: «an 24» :: VERCEL_TOKEN
cloudflare api :: «url 40» :: CLOUDFLARE_API_TOKEN
cloudflare global :: «hex 37» :: CF_API_KEY
wandb :: «hex 40» :: WANDB_API_KEY
mistral :: «an 32» :: MISTRAL_API_KEY
cohere :: «an 40» :: CO_API_KEY
together :: «hex 64» :: TOGETHER_API_KEY
deepgram :: «hex 40» :: DEEPGRAM_API_KEY
snyk :: «uuid» :: SNYK_TOKEN
postmark :: «uuid» :: POSTMARK_SERVER_TOKEN
railway :: «uuid» :: RAILWAY_TOKEN
codecov :: «uuid» :: CODECOV_TOKEN
discord client :: «url 32» :: DISCORD_CLIENT_SECRET
spotify :: «hex 32» :: SPOTIFY_CLIENT_SECRET
auth0 :: «url 64» :: AUTH0_CLIENT_SECRET
plain password :: «pw» :: DB_PASSWORD
admin password :: «pw» :: ADMIN_PASS
smtp password :: «pw» :: SMTP_PASSWORD
redis password :: «an 20» :: REDIS_PASSWORD
django secret :: «lo 20»!-^«lo 24» :: SECRET_KEY
rails base :: «hex 128» :: SECRET_KEY_BASE
rails master :: «hex 32» :: RAILS_MASTER_KEY
nextauth :: «b64 43»= :: NEXTAUTH_SECRET
jwt secret :: «hex 64» :: JWT_SECRET
fernet :: «url 43»= :: FERNET_KEY
encryption key :: «b64 43»= :: ENCRYPTION_KEY
cookie secret :: «an 32» :: COOKIE_SECRET
webhook secret :: «hex 40» :: WEBHOOK_SECRET
internal token :: «an 24» :: INTERNAL_SERVICE_TOKEN
signing secret :: «hex 32» :: SLACK_SIGNING_SECRET
keystore password :: «pw» :: KEYSTORE_PASSWORD
ethereum key :: 0x«hex 64» :: DEPLOYER_PRIVATE_KEY
"""

TOKENS = (
    *_kinds(_SHAPED_TABLE, ASSIGNED + SHAPED),
    *_kinds(_NAMED_TABLE, ASSIGNED),
)
