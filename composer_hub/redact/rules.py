"""The shapes of secrets that give themselves away: a vendor's prefix, a key block, a hash with its scheme.

In: nothing. Out: `Rule`, and `SHAPES`, one row a shape. A rule is tried only where one of its anchors occurs: anchors
are found with `str.find`, the pattern is matched from there, so a rule costs nothing on text without its anchor and
stays linear on any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from composer_hub.redact.entropy import EXAMPLES, is_dummy, looks_random, num_classes, switches


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of value: where it may begin (`anchors`), what it is (`pattern`, or its group `v`), when it stays."""

    name: str
    label: str  # of the placeholder: SECRET, EMAIL, …
    anchors: tuple[str, ...]
    pattern: re.Pattern[str]
    keep: Callable[[str], bool] = is_dummy
    before: re.Pattern[str] | None = None  # the part of the value that stands in front of the anchor
    bounded: bool = True  # without `before`: no letter or digit may stand right in front of the anchor


def shape(name: str, anchors: str, tail: str, keep: Callable[[str], bool] = is_dummy) -> Rule:
    """Make a rule for a token whose prefix is one of the space-separated anchors, followed by `tail`."""
    words = tuple(anchors.split())
    # Longest first: `sk-ant-` must not be read as `sk-`.
    prefix = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    return Rule(name, "SECRET", words, re.compile(f"(?:{prefix}){tail}", re.ASCII), keep)


def not_random(value: str) -> bool:
    """Keep what reads like words after a short prefix that identifiers use as well."""
    return not (looks_random(value) or looks_random(re.split(r"[_-]", value)[-1]))


def _is_wallet_key(value: str) -> bool:
    """Tell a wallet's key from a word: three kinds of characters, changing as often as chance changes them."""
    return num_classes(value) == 3 and switches(value) >= 0.45 and not is_dummy(value)


_W = "[A-Za-z0-9_-]"
_A = "[A-Za-z0-9]"
_H = "[0-9a-fA-F]"
_B = "[A-Za-z0-9+/]"

SHAPES: tuple[Rule, ...] = (
    # Code hosts and package registries.
    shape("github", "ghp_ gho_ ghu_ ghs_ ghr_", f"{_A}{{30,255}}"),
    shape("github_fine_grained", "github_pat_", r"\w{36,255}"),
    shape(
        "gitlab",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat- glffct- glrtr- GR1348941",
        r"[\w.-]{20,300}",
    ),
    shape("bitbucket", "ATBB ATCTT3 ATATT3 ATSTT3 ATOAT", r"[\w=-]{24,400}", not_random),
    shape("npm", "npm_", f"{_A}{{30,64}}", not_random),
    shape("pypi", "pypi-", f"{_W}{{50,300}}"),
    shape("rubygems", "rubygems_", f"{_H}{{40,64}}"),
    shape("crates_io", "cio", f"{_A}{{32}}(?!{_A})", not_random),
    shape("nuget", "oy2", "[a-z0-9]{43}(?![a-z0-9])", not_random),
    shape("packagist_clojars", "packagist_ CLOJARS_", f"\\w{{0,8}}{_H}{{40,80}}"),
    shape("docker_hub", "dckr_pat_ dckr_oat_", f"{_W}{{20,80}}"),
    shape("artifactory", "AKCp cmVmdGtu", f"{_A}{{50,100}}", not_random),
    # Model providers.
    shape("huggingface", "hf_ api_org_", f"{_A}{{30,64}}", not_random),
    shape("anthropic", "sk-ant-", f"{_W}{{20,200}}"),
    shape("openrouter", "sk-or-", f"{_W}{{30,120}}"),
    shape("openai", "sk-proj- sk-svcacct- sk-admin- sk-None-", f"{_W}{{20,250}}"),
    shape("sk_key", "sk-", f"{_W}{{20,200}}", not_random),
    shape("sk_hex", "sk-", f"{_H}{{32}}(?!{_W})"),
    shape("langsmith", "lsv2_pt_ lsv2_sk_ ls__", f"{_H}{{32}}(?:_{_H}{{10}})?"),
    shape("langfuse", "sk-lf-", r"[0-9a-f-]{32,40}"),
    shape("groq", "gsk_", f"{_A}{{40,80}}"),
    shape("xai", "xai-", f"{_A}{{40,120}}"),
    shape("replicate", "r8_", f"{_A}{{36,42}}"),
    shape("together_fireworks", "tgp_v1_ fw_ fpk_", f"{_W}{{20,60}}", not_random),
    shape("pinecone", "pcsk_", r"\w{40,100}"),
    shape(
        "perplexity_cerebras_tavily",
        "pplx- csk- tvly- tvly-dev- nvapi- jina_ e2b_ bb_live_",
        f"{_W}{{24,100}}",
        not_random,
    ),
    shape("elevenlabs", "sk_", f"{_H}{{48}}(?!{_H})"),
    shape("wandb", "wandb_v1_", r"\w{40,120}"),
    shape("cursor", "crsr_ key_", f"{_H}{{40,72}}(?!{_H})"),
    # Clouds.
    shape("aws_key_id", "AKIA ASIA ABIA ACCA", f"[A-Z2-7]{{16}}(?!{_A})"),
    shape("aws_key_id_loose", "AKIA ASIA", f"[A-Z0-9]{{16}}(?!{_A})"),
    shape("aws_session", "FwoGZXIvYXdz IQoJb3JpZ2lu", "[A-Za-z0-9+/=%]{60,3000}"),
    shape("aws_bedrock", "ABSK bedrock-api-key-", f"{_B}{{60,400}}=*", not_random),
    shape("google_api", "AIza", f"{_W}{{33,39}}"),
    shape("google_oauth", "ya29. GOCSPX- 1//0 4/0A", r"[\w.-]{20,1200}", not_random),
    shape("google_express", "AQ.Ab", f"{_W}{{40,120}}"),
    shape("azure_storage", "AccountKey= SharedAccessKey=", f"(?P<v>{_B}{{40,100}}={{0,2}})"),
    Rule("azure_sas", "SECRET", ("sig=",), re.compile(r"sig=(?P<v>[A-Za-z0-9%+/]{30,120}(?:%3D|=){0,2})")),
    Rule(
        "azure_client_secret",
        "SECRET",
        ("8Q~", "7Q~"),
        re.compile(r"[78]Q~[\w.~-]{28,37}"),
        before=re.compile(r"[\w.~-]{0,3}\Z"),
    ),
    Rule(
        "azure_key",
        "SECRET",
        ("JQQJ99",),
        re.compile(r"JQQJ99[A-Za-z0-9]{20,60}"),
        before=re.compile(r"[A-Za-z0-9]{30,60}\Z"),
    ),
    shape("digitalocean", "dop_v1_ doo_v1_ dor_v1_", f"{_H}{{40,80}}"),
    shape("heroku", "HRKU-", f"{_W}{{30,80}}"),
    shape("databricks", "dapi dkea dose", f"{_H}{{32}}(?:-\\d)?(?!{_H})"),
    shape("cloudflare", "v1.0- cfut_ cfat_ cfk_", r"[\w-]{40,200}", not_random),
    shape("vercel", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", f"{_W}{{20,100}}", not_random),
    shape("netlify", "nfp_ nfc_ nfo_ nfb_", f"{_A}{{30,60}}"),
    shape("supabase", "sbp_ sb_secret_", f"{_W}{{20,80}}", not_random),
    shape("flyio", "FlyV1 fo1_ fm1r_ fm2_", "\\s?[\\w+/=,-]{40,2000}", not_random),
    shape("render", "rnd_", f"{_A}{{24,60}}", not_random),
    shape("neon", "napi_ npg_", f"{_A}{{12,80}}", not_random),
    shape("planetscale", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[\w.-]{30,80}"),
    shape("scaleway", "SCW", f"[A-Z0-9]{{17}}(?!{_A})", not_random),
    shape("alibaba_tencent", "LTAI AKID AKLT", f"{_A}{{12,50}}(?!{_A})", not_random),
    Rule(
        "terraform", "SECRET", (".atlasv1.",), re.compile(r"\.atlasv1\.[\w-]{50,80}"), before=re.compile(r"\w{10,20}\Z")
    ),
    shape("vault", "hvs. hvb. hvr.", f"{_W}{{24,300}}"),
    shape("doppler", "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.", r"[\w.-]{30,80}"),
    shape("pulumi", "pul-", f"{_H}{{40}}(?!{_H})"),
    shape("tailscale", "tskey-", f"{_W}{{16,100}}"),
    shape("age", "AGE-SECRET-KEY-1 AGE-SECRET-KEY-PQ-1", "[A-Z0-9]{50,2500}"),
    shape("onepassword", "ops_eyJ", "[A-Za-z0-9_=-]{100,2000}"),
    # Talk and work.
    shape(
        "slack", "xoxb- xoxp- xoxa- xoxo- xoxs- xoxr- xoxe- xoxc- xoxd- xoxe.xoxb- xoxe.xoxp- xapp-", r"[\w%.-]{16,400}"
    ),
    Rule(
        "slack_webhook",
        "SECRET",
        ("hooks.slack.com/",),
        re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<v>[\w/+-]{20,120})"),
        bounded=False,
    ),
    Rule(
        "teams_webhook",
        "SECRET",
        ("webhook.office.com/",),
        re.compile(r"webhook\.office\.com/webhookb?2?/(?P<v>[\w@/-]{40,300})"),
        bounded=False,
    ),
    Rule(
        "zapier_webhook",
        "SECRET",
        ("hooks.zapier.com/",),
        re.compile(r"hooks\.zapier\.com/hooks/catch/(?P<v>\d+/\w+)"),
        bounded=False,
    ),
    Rule(
        "discord_webhook",
        "SECRET",
        ("/api/webhooks/",),
        re.compile(r"/api/webhooks/(?P<v>\d{15,21}/[\w-]{40,100})"),
        bounded=False,
    ),
    Rule(
        "discord_bot",
        "SECRET",
        (".",),
        re.compile(r"\.[\w-]{6}\.[\w-]{27,45}(?![\w-])"),
        not_random,
        before=re.compile(r"(?<![A-Za-z0-9])[MNO][\w-]{22,27}\Z"),
    ),
    Rule("telegram", "SECRET", (":AA",), re.compile(r":(?P<v>AA[\w-]{32,35})(?![\w-])"), bounded=False),
    shape("linear", "lin_api_ lin_oauth_", f"{_A}{{32,80}}"),
    shape("notion", "ntn_ secret_", f"{_A}{{40,60}}", not_random),
    shape("figma", "figd_ figo_ figu_ figoh_ figor_", f"{_W}{{30,100}}"),
    shape("airtable", "pat", f"{_A}{{14}}\\.{_H}{{64}}"),
    shape("postman", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    shape("atlassian_trello", "ATTA", f"{_H}{{60,80}}"),
    shape("asana", "0/ 1/ 2/", r"\d{13,17}(?:/\d{13,17})?:[0-9a-f]{32}"),
    shape("hubspot", "pat-na1- pat-na2- pat-eu1- pat-ap1-", r"[0-9a-f-]{36}"),
    shape("dropbox", "sl.", f"{_W}{{80,1500}}", not_random),
    shape("contentful", "CFPAT-", f"{_W}{{40,50}}"),
    shape("mapbox", "sk.eyJ", r"[\w.-]{60,200}"),
    shape("posthog", "phx_ phs_", f"{_A}{{32,64}}"),
    # Money.
    shape("stripe", "sk_live_ sk_test_ rk_live_ rk_test_ sk_org_", "\\w{16,250}"),
    shape("webhook_signing", "whsec_", f"{_B}{{20,100}}={{0,2}}"),
    shape("square", "sq0atp- sq0csp- sq0idp- EAAA", f"{_W}{{22,80}}", not_random),
    shape("paypal", "access_token$production$ access_token$sandbox$", r"[a-z0-9]{16}\$[0-9a-f]{32}"),
    shape("plaid", "access-production- access-sandbox- access-development-", r"[0-9a-f-]{36}"),
    shape("razorpay", "rzp_live_ rzp_test_", f"{_A}{{14,24}}"),
    shape("shopify", "shpat_ shpca_ shppa_ shpss_ shptka_ shpua_", f"{_A}{{30,40}}"),
    shape("woocommerce", "ck_ cs_", f"{_H}{{40}}(?!{_H})"),
    shape("facebook", "EAA", f"{_A}{{80,300}}", not_random),
    shape(
        "twitter_bearer",
        "AAAAAAAAAAAAAAAAAAAAA",
        r"(?=[\w%]{0,8}[B-Zb-z0-9%])[\w%]{40,120}",
        lambda value: not looks_random(value[26:]),
    ),
    # Mail and monitoring.
    shape("sendgrid", "SG.", r"[\w-]{16,32}\.[\w-]{30,60}"),
    shape("mailgun", "key-", f"{_H}{{32}}(?!{_H})"),
    Rule("mailchimp", "SECRET", ("-us",), re.compile(r"-us\d{1,2}(?!\w)"), before=re.compile(r"(?<!\w)[0-9a-f]{32}\Z")),
    shape("brevo", "xkeysib- xsmtpsib-", f"{_H}{{64}}-{_A}{{16}}"),
    shape("resend", "re_", f"{_A}{{8}}_{_A}{{20,30}}", not_random),
    shape("twilio", "SK", f"[0-9a-f]{{32}}(?!{_A})"),
    Rule(
        "sentry_dsn",
        "SECRET",
        ("://",),
        re.compile(r"://(?P<v>[0-9a-f]{32}(?::[0-9a-f]{32})?)@[\w.-]+/\d+"),
        bounded=False,
    ),
    shape("sentry", "sntrys_ sntryu_ sntrya_", "[A-Za-z0-9+/=_]{40,400}"),
    shape("newrelic", "NRAK- NRAA- NRII- NRIQ- NRRA- NRJS-", f"{_W}{{19,48}}"),
    Rule(
        "newrelic_license",
        "SECRET",
        ("NRAL",),
        re.compile(r"NRAL(?!\w)"),
        before=re.compile(r"(?<!\w)[0-9a-fA-F]{36}\Z"),
    ),
    shape("grafana", "glsa_ glc_ eyJrIjoi", "[A-Za-z0-9+/=_]{32,400}"),
    shape("dynatrace", "dt0c01. dt0s01. dt0s16. dt0s06.", r"[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    shape("circleci", "CCIPAT_ CCIPRJ_", r"\w{40,100}"),
    shape("buildkite", "bkua_ bkaa_ bkpat_", f"{_H}{{40}}"),
    shape("sonarqube", "squ_ sqp_ sqa_", f"{_H}{{40}}"),
    shape("baidu", "bce-v3/ALTAK-", f"{_A}{{21}}/{_H}{{40}}"),
    # Further services, by their own prefixes.
    shape("adafruit", "aio_", f"{_A}{{26,32}}(?!{_A})", not_random),
    shape("sourcegraph", "sgp_ sgd_ slk_", f"(?:{_H}{{16}}_|local_)?{_H}{{40}}"),
    shape("easypost", "EZAK EZTK", f"{_A}{{54,80}}"),
    shape("launchdarkly", "sdk- api- mob-", f"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"),
    shape("wakatime", "waka_ waka_tok_", f"{_W}{{30,80}}", not_random),
    shape("shippo", "shippo_live_ shippo_test_", f"{_H}{{40}}"),
    shape("readme", "rdme_", f"{_A}{{60,80}}"),
    shape("apify_typeform", "apify_api_ tfp_", f"{_W}{{30,80}}", not_random),
    shape("jetbrains", "perm: perm-", r"[\w.=+/-]{30,160}", not_random),
    shape("firecrawl", "fc-", f"{_A}{{30,64}}(?!{_A})", not_random),
    shape("frameio_duffel", "fio-u- duffel_live_ duffel_test_", f"{_W}{{30,80}}", not_random),
    shape("flutterwave", "FLWSECK_TEST- FLWSECK- FLWSECK_LIVE-", r"[\w-]{12,60}"),
    shape("gitlab_secret_token", "secret-token:", r"[\w%.+/=-]{16,300}", not_random),
    shape("openshift", "sha256~", f"{_W}{{40,46}}(?!{_W})", not_random),
    shape("mongodb_atlas", "mdb_sa_sk_", f"{_W}{{30,60}}"),
    shape("cockroach", "CCDB1_", r"\w{30,80}"),
    shape("aiven", "AVNS_", f"{_W}{{16,40}}", not_random),
    shape("pagerduty", "pdus+", r"[\w+/=-]{20,60}"),
    shape("honeycomb", "hcaik_ hcalk_ hcamk_ hcaic_", f"{_A}{{30,80}}"),
    shape("telnyx", "KEY0", f"{_A}{{30,40}}_{_A}{{16,30}}"),
    shape("yandex", "AQVN YCAJE YCM t1.", r"[\w-]{30,220}(?:\.[\w-]{60,120})?=*", not_random),
    shape("mailersend_mandrill", "mlsn. md-", f"{_W}{{22,80}}", not_random),
    shape("nostr", "nsec1", "[a-z0-9]{58}(?![a-z0-9])", not_random),
    shape("extended_key", "xprv yprv zprv tprv", f"{_A}{{90,112}}(?!{_A})", not_random),
    shape(
        "wallet_import", "5 K L", r"[1-9A-HJ-NP-Za-km-z]{50,51}(?![\w+/=-])", lambda value: not _is_wallet_key(value)
    ),
    # Keys, tokens and hashes of no one vendor.
    Rule(
        "jwt",
        "SECRET",
        ("eyJ", "ewog"),
        re.compile(r"(?:eyJ|ewog)[\w-]{8,4000}\.(?:[\w-]{8,8000}|(?=\.[\w-]{12}))(?:\.[\w-]*){0,3}"),
        lambda value: any(example in value for example in EXAMPLES),
    ),
    Rule(
        "pem_base64",
        "SECRET",
        ("LS0tLS1CRUdJTi",),
        re.compile(
            r"LS0tLS1CRUdJTi(?:BSU0EgUFJJVk|BQUklWQVRF|BFQyBQUklW|BPUEVOU1NI|BFTkNSWVBU|BEU0EgUFJJVk"
            r"|BQR1AgUFJJV)[A-Za-z0-9+/=\s]{20,20000}"
        ),
        lambda value: False,
    ),
    Rule(
        "crypt_hash",
        "SECRET",
        (
            "$2a$",
            "$2b$",
            "$2y$",
            "$1$",
            "$5$",
            "$6$",
            "$y$",
            "$7$",
            "$apr1$",
            "$argon2",
            "$scrypt$",
            "$pbkdf2",
            "{SSHA}",
            "{SHA}",
        ),
        re.compile(
            r"(?:\$2[aby]\$\d\d\$[A-Za-z0-9./]{53}|\$(?:[1567y]"
            r"|apr1)\$(?:rounds=\d+\$)?[A-Za-z0-9./]{1,40}(?:\$[A-Za-z0-9./]{1,40})?\$[A-Za-z0-9./]{22,90}"
            r"|\$argon2(?:id|i|d)\$[A-Za-z0-9+/=,$]{30,200}|\$(?:scrypt"
            r"|pbkdf2)[\w-]*\$[A-Za-z0-9+/=,.$]{30,300}|\{S?SHA\}[A-Za-z0-9+/=]{28,64})"
        ),
        bounded=False,
    ),
    Rule(
        "django_hash",
        "SECRET",
        ("pbkdf2_sha", "pbkdf2:sha", "scrypt:32768"),
        re.compile(
            r"(?:pbkdf2_sha\d+\$\d+\$|pbkdf2:sha\d+(?::\d+)?\$"
            r"|scrypt:[\d:]+\$)[A-Za-z0-9./+=]{8,40}\$[A-Za-z0-9+/=]{40,200}"
        ),
    ),
)


# -------------------------------------------------------------------------------------------------- where to try a rule

# Most prefixes end in a separator with a long run behind it that is no lower-case word: one search for such separators
# tries them all. The others are found by one search for their capitals and signs, which are rare, or one by one.
SEPARATOR = re.compile(r"[_\-.](?=[\w\-.+/=]{12})(?=[\w\-.+/=]{0,23}?(?:\d|[a-z][A-Z]|[A-Z][a-z]))", re.ASCII)


def _by_anchor(wanted: Callable[[str], bool]) -> dict[str, tuple[Rule, ...]]:
    anchors = [anchor for rule in SHAPES for anchor in rule.anchors if wanted(anchor)]
    return {anchor: tuple(rule for rule in SHAPES if anchor in rule.anchors) for anchor in anchors}


BY_SEPARATOR = _by_anchor(lambda anchor: anchor[-1] in "_-.")
BY_CAPITAL = _by_anchor(lambda anchor: anchor[-1] not in "_-." and not anchor[0].islower())
BY_WORD = _by_anchor(lambda anchor: anchor[-1] not in "_-." and anchor[0].islower())
ENDINGS = tuple(BY_SEPARATOR)
TAILS = frozenset(anchor[-2:] for anchor in ENDINGS)
LENGTHS = tuple(sorted({len(anchor) for anchor in ENDINGS}))
CAPITALS = re.compile("|".join(map(re.escape, sorted(BY_CAPITAL, key=len, reverse=True))))
