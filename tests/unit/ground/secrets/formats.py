"""Secrets of many services, put together at random, and the text around them.

`secrets` maps the name of a format to a text that holds one; `part_of` is the random part that must
not remain. Nothing here is or was valid.
"""

import base64
import json
import random
import re
import string
from collections.abc import Callable, Mapping
from urllib.parse import quote

_ALNUM = string.ascii_letters + string.digits
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BECH32 = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_URL_SAFE = _ALNUM + "-_"
_SETS = {
    "a": _ALNUM,
    "h": _HEX,
    "U": _UPPER,
    "A": _BECH32,
    "B": _BASE32,
    "5": _BASE58,
    "u": _URL_SAFE,
}
_SETS |= {"d": string.digits[1:], "l": string.ascii_lowercase, "L": string.ascii_letters}

_SHAPES = """
upwell upw_{u43}
url-safe {u43}
aws AKIA{B16}
aws-temporary ASIA{B16}
aws-secret aws_secret_access_key = {a40}
github ghp_{a36}
github-oauth gho_{a36}
github-server ghs_{a36}
github-refresh ghr_{a36}
github-fine github_pat_{a22}_{a59}
gitlab glpat-{a20}
gitlab-runner glrt-{a20}
gitlab-deploy gldt-{a20}
slack-bot xoxb-{d12}-{d12}-{a24}
slack-user xoxp-{d12}-{d12}-{d12}-{h32}
slack-hook https://hooks.slack.com/services/T{U8}/B{U8}/{a24}
stripe sk_live_{a24}
stripe-restricted rk_live_{a24}
stripe-hook whsec_{a32}
openai sk-{a20}T3BlbkFJ{a20}
openai-project sk-proj-{a74}T3BlbkFJ{a74}
anthropic sk-ant-api03-{a93}AA
anthropic-oauth sk-ant-oat01-{a93}AA
openrouter sk-or-v1-{h64}
groq gsk_{a52}
xai xai-{a80}
hugging-face hf_{L34}
replicate r8_{a37}
perplexity pplx-{a48}
deepseek DEEPSEEK_API_KEY=sk-{h32}
google AIza{u35}
google-client GOCSPX-{a28}
google-refresh 1//0{a60}
google-access ya29.{a120}
npm npm_{a36}
pypi pypi-AgEIcHlwaS5vcmc{a80}
docker dckr_pat_{a27}
crates cio{a32}
rubygems rubygems_{h48}
telegram {d10}:AA{a33}
discord M{a25}.{a6}.{a38}
twilio SK{h32}
sendgrid SG.{a22}.{a43}
mailgun key-{h32}
mailchimp {h32}-us12
jwt eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwi{a40}.{a43}
digitalocean dop_v1_{h64}
digitalocean-oauth doo_v1_{h64}
heroku HRKU-{a60}
linear lin_api_{a40}
notion ntn_{d11}{a35}
notion-old secret_{a43}
figma figd_{a40}
atlassian ATATT3xFfGF0{a180}=
sentry sntrys_eyJpYXQiO{a80}LCJyZWdpb25fdXJs{a60}_{a43}
postman PMAK-{h24}-{h34}
newrelic NRAK-{U27}
datadog DD_API_KEY={h32}
shopify shpat_{h32}
vault hvs.{a92}
databricks dapi{h32}
doppler dp.pt.{a43}
age AGE-SECRET-KEY-1{A58}
cloudflare CLOUDFLARE_API_TOKEN={a40}
supabase sbp_{h40}
vercel VERCEL_TOKEN={a24}
fly FlyV1 fm2_{a200}
planetscale pscale_tkn_{a43}
neon postgres://user:npg_{a16}@ep-x.aws.neon.tech/db
mongo mongodb+srv://admin:{a18}@cluster0.x.mongodb.net
redis redis://:{a20}@10.0.0.1:6379/0
url https://bob:{a16}@git.example.com/x.git
azure-storage AccountKey={a86}==
azure-client {a3}8Q~{a34}
azure-signature ?sv=2022-11-02&ss=b&sig={a43}%3D
service-account "private_key_id": "{h40}"
basic Authorization: Basic {a40}
bearer Authorization: Bearer {a40}
cookie Cookie: sessionid={a32}
password-env DB_PASSWORD="{a18}"
password-yaml password: {a17}7
netrc machine api.x.com login bob password {a18}
pgpass localhost:5432:db:user:{a18}
npmrc //registry.npm.example/:_authToken={a36}
kubeconfig client-key-data: {a400}
curl curl -u bob:{a16} https://x.com
sshpass sshpass -p {a16} ssh x
mysql mysql -uroot -p{a16} db
bcrypt bob:$2y$10${a53}
otp otpauth://totp/x?secret={B32}
wallet 5{550}
"""


def _filled(shape: str, rng: random.Random) -> str:
    def fill(match: re.Match[str]) -> str:
        return "".join(rng.choices(_SETS[match[1]], k=int(match[2])))

    return re.sub(r"\{([a-zA-Z5])(\d+)\}", fill, shape)


def _key_file(kind: str, rng: random.Random) -> str:
    lines = "\n".join("".join(rng.choices(_ALNUM, k=64)) for _ in range(10))
    return f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----"


def secrets(seed: int = 7) -> dict[str, str]:
    rng = random.Random(seed)
    shapes = dict(line.split(" ", 1) for line in _SHAPES.strip().splitlines())
    by_name = {name: _filled(shape, rng) for name, shape in shapes.items()}
    for kind in ("RSA", "OPENSSH", "EC", "ENCRYPTED"):
        by_name[f"{kind.lower()}-key"] = _key_file(f"{kind} {'PRIVATE'} KEY", rng)
    by_name["pgp-key"] = _key_file(f"PGP {'PRIVATE'} KEY BLOCK", rng)
    return by_name


def part_of(secret: str) -> str:
    """The end of the longest random part of a secret."""
    if "BEGIN" in secret:
        return secret.splitlines()[3]
    names = "client-key-data|aws_secret_access_key|CLOUDFLARE_API_TOKEN|DEEPSEEK_API_KEY"
    parts = re.findall(r"[A-Za-z0-9+/_-]{12,}", re.sub(names, "", secret))
    return max(parts, key=len)[-14:]


SURROUNDINGS: Mapping[str, Callable[[str], str]] = {
    "a sentence": lambda s: f"the value is {s}. And so on",
    "a list": lambda s: f"a,{s},b",
    "a call": lambda s: f"connect({s})",
    "a table": lambda s: f"| key | {s}|",
    "an address": lambda s: f"https://x.example/?k={s}&z=1",
    "a tag": lambda s: f"<td>{s}</td>",
    "JSON": lambda s: json.dumps({"value": s, "n": 1}),
    "JSON in JSON": lambda s: json.dumps({"log": json.dumps({"value": s})}),
    "colours in JSON in JSON": lambda s: json.dumps(json.dumps({"log": f"\x1b[31m{s}\x1b[0m"})),
    "zero-width characters in JSON": lambda s: json.dumps(json.dumps(f"{s[:8]}\u200b{s[8:]}")),
    "colours": lambda s: f"\x1b[31m{s}\x1b[0m",
    "zero-width characters": lambda s: f"{s[:8]}\u200b{s[8:]}",
    "percent encoding": lambda s: quote(s, safe=""),
    "escaped line ends": lambda s: f"a\\n{s}\\nb".replace("\n", "\\n"),
    "Markdown": lambda s: f"**{s}** and `{s}`",
}


def encoded(secret: str) -> tuple[str, str]:
    """The secret in Base64, and a part of that."""
    text = base64.b64encode(secret.encode()).decode()
    return text, text[20:40]
