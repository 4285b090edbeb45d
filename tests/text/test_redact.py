"""Secrets are hidden by shape, by key and by known value; what merely looks like one stays."""

from __future__ import annotations

import json
import random
import re
import time
from typing import Any

import pytest

from evalkit.text import redact as redaction
from evalkit.text.redact import REDACTED, SECRET_KEYS, Redactor, find_secrets

SHAPES = {
    "openai": "sk-proj-abcdefghijklmnop1234",
    "anthropic": "sk-ant-api03-abcdefghijklmnop",
    "google": "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "google oauth": "ya29.a0AfH6SMBx1234567890abcd",
    "groq": "gsk_abcdefghijklmnopqrstuvwx",
    "hugging face": "hf_abcdefghijklmnopqrstuvwx",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github, fine-grained": "github_pat_11ABCDEFG0123456789_abcdefgh",
    "gitlab": "glpat-abcdefghijklmnopqrst",
    "slack": "xoxb-1234567890-abcdefghij",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "stripe": "sk_live_abcdefghijklmnop",
    "stripe, restricted": "rk_live_abcdefghijklmnop",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "npm": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "pypi": "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3A",
    "sendgrid": "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG",
    "slack, app": "xapp-1-A0123456789-1234567890-abcdef",
    "google, client": "GOCSPX-abcdefghijklmnopqrstuvwx",
    "databricks": "dapi0123456789abcdef0123456789abcdef",
    "docker": "dckr_pat_abcdefghijklmnopqrstuvwx",
    "vault": "hvs.abcdefghijklmnopqrstuvwxyz",
    "jwt behind a dash": "-eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"[1:],
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQ\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
def test_a_token_of_a_known_shape_is_hidden_in_text_and_in_json(secret: str) -> None:
    redact = Redactor()
    assert redact(f"the key is {secret}, keep it") == f"the key is {REDACTED}, keep it"
    assert json.loads(redact(json.dumps({"note": f"({secret})"}))) == {"note": f"({REDACTED})"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer [redacted]"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==, and", "authorization: Basic [redacted], and"),
        ("use Basic dXNlcjpwYXNzd29yZA", "use Basic [redacted]"),
        ("bearer abcdefghijkl1 is it", "bearer [redacted] is it"),
        ("postgres://bob:hunter2@db/x", "postgres://bob:[redacted]@db/x"),
        ("GET /v1?api_key=abcd1234&page=2", "GET /v1?api_key=[redacted]&page=2"),
        ("{'password': \"it's\", 'user': 'bob'}", "{'password': \"[redacted]\", 'user': 'bob'}"),
        ("connect(password='tiger lily', user='bob')", "connect(password='[redacted]', user='bob')"),
        ('db_password = "tiger"', 'db_password = "[redacted]"'),
        ("X-Api-Key: abc123def456, Accept: json", "X-Api-Key: [redacted], Accept: json"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG and", "AWS_SECRET_ACCESS_KEY=[redacted] and"),
        ("redis://:hunter22@cache:6379/0", "redis://:[redacted]@cache:6379/0"),
        ("https://hooks.slack.com/services/T000/B000/abcdefghijkl", "https://hooks.slack.com/services/[redacted]"),
        ("AccountName=a;AccountKey=abcdefghijklmnopqrstuvwxyz0123==;", "AccountName=a;AccountKey=[redacted];"),
        ("blob?sv=2024&sig=abcdefghijklmnopqrstuvwx%3D&se=1", "blob?sv=2024&sig=[redacted]&se=1"),
        ("see\\nsk-proj-abcdefghijklmnop1234", "see\\n[redacted]"),
    ],
)
def test_the_words_around_a_secret_stay(text: str, expected: str) -> None:
    assert Redactor()(text) == expected


@pytest.mark.parametrize(
    "key", ["password", "API-Key", "apiKey", "client_secret", "access_token", "token", "X-Api-Key", "Authorization"]
)
def test_the_value_of_a_secret_key_is_hidden_wherever_it_is_quoted(key: str) -> None:
    record = {key: "tiger-lily", "message": 'expected "x", got "tiger-lily"', "inner": json.dumps({key: 'a"tiger'})}
    hidden = json.loads(Redactor()(json.dumps(record)))
    assert hidden == {
        key: REDACTED,
        "message": f'expected "x", got "{REDACTED}"',
        "inner": json.dumps({key: REDACTED}),
    }


@pytest.mark.parametrize(
    "harmless",
    [
        {"max_tokens": 100, "prompt_tokens": "12", "total_tokens": 3},
        {"next_page_token": "p2"},
        {"required": ["password"], "properties": {"password": {"type": "string"}}},
        {"text": "task-list, a monkey, the secret garden, password reset"},
        {"password": "", "token": None},
        {"max_tokens": "4096", "page_token": "abcdefgh12", "password_reset": "soon"},
        {"commit": "3b18e512dba79e4c8300dd08aeb37f8e728b8dad", "id": "6f1c2c1e-3f2b-4d53-9a52-0c4b1b8c9c11"},
        {"text": "the key: a word, token: none, password: please reset it, secret: nobody knows"},
        {"text": "task-1234567890abcdefghij, risk-assessment-of-the-year, npm_install, pypi-mirror"},
        {"text": "a basic understanding. Basic authentication, or bearer authentication. Bearer certificates"},
    ],
)
def test_what_only_looks_like_a_secret_stays(harmless: dict[str, Any]) -> None:
    text = json.dumps(harmless)
    assert Redactor()(text) == text


def test_a_secret_that_is_a_plain_word_does_not_damage_the_record_around_it() -> None:
    record = {"password": "passed", "status": "passed", "message": 'got "passed"'}
    assert json.loads(Redactor()(json.dumps(record))) == {
        "password": REDACTED,
        "status": "passed",
        "message": f'got "{REDACTED}"',
    }


def test_known_values_are_hidden_in_their_plain_and_their_json_form() -> None:
    redact = Redactor(["grüner-Wald"])
    assert redact("im grüner-Wald") == f"im {REDACTED}"
    assert redact(json.dumps({"a": "grüner-Wald"})) == json.dumps({"a": REDACTED})


def test_more_keys_can_be_named() -> None:
    assert Redactor(keys=["national-id"])('{"national_id": "80010112345"}') == f'{{"national_id": "{REDACTED}"}}'


def test_secrets_of_an_environment_are_told_by_their_names() -> None:
    environment = {
        "GEMINI_API_KEY": "canary-of-gemini",
        "DB_PASSWORD": "canary-of-db",
        "DEBUG_TOKEN": "1",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google.json",
        "HOME_TOWN": "Konstantynopol",
    }
    assert find_secrets(environment) == ("canary-of-gemini", "canary-of-db")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GH_PAT", "0123456789abcdef"),
        ("SMTP_PASS", "tiger-lily"),
        ("DB_PWD", "tiger-lily"),
        ("SENTRY_DSN", "https://abc@sentry.invalid/1"),
        ("STORAGE_CONNECTION_STRING", "Endpoint=sb://x;Key=abc"),
        ("AWS_SECRET_ACCESS_KEY", "/wJalrXUtnFEMI/K7MDENG/bPxRfiCY"),
        ("DB_PASSWORD", "~tiger!lily"),
        ("DB_PASSWORD", ".tiger-lily"),
        ("SLACK_WEBHOOK_URL", "https://hooks.invalid/T0/B0/xyz"),
        ("DB_PASSWORD", "swordfish"),
    ],
)
def test_more_variables_of_an_environment_are_secret(name: str, value: str) -> None:
    assert find_secrets({name: value}) == (value,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SSL_KEY", "/etc/ssl/private.key"),
        ("SSH_KEY", "~/.ssh/id_rsa"),
        ("TLS_KEY", "./certificates/tls.key"),
        ("OLDPWD", "tiger-lily"),
        ("PWD", "/home/somebody/project"),
        ("COMPASS", "north-north-west"),
        ("OUTPUT_FORMAT", "junit-xml-2"),
    ],
)
def test_other_variables_of_an_environment_are_not_secret(name: str, value: str) -> None:
    assert find_secrets({name: value}) == ()


FRAGMENTS = (
    *(marker for marker, _ in redaction._SHAPES),
    *SHAPES.values(),
    *SECRET_KEYS,
    *("bearer abcdefghijkl1", "Basic dXNlcjpwYXNzd29yZA==", "postgres://bob:hunter2@db/x", "pa\u017f\u017fword"),
    *('"', "'", "\\", '\\"', ": ", "=", "&", " ", "\n", "_", "-", ".", "{", "}", REDACTED, "a", "Z", "9", "\u212a"),
    *("tiger-lily", "gr\xfcner-Wald", "national-id", "password reset", "check_warranty", "\ud800", "\U0001f600"),
)


def hostile_text(rng: random.Random) -> str:
    """Markers, tokens, keys and parts of them, quoted in all the ways that secrets are looked for in."""
    parts = []
    for _ in range(rng.randrange(1, 9)):
        part = rng.choice(FRAGMENTS)
        if rng.random() < 0.2:
            start = rng.randrange(len(part))
            part = part[start : rng.randrange(start, len(part)) + 1]
        if rng.random() < 0.3:
            key = rng.choice((*SECRET_KEYS, "national_id"))
            pair = {rng.choice((key, key.upper(), key.replace("_", ""))): part}
            part = rng.choice((json.dumps(pair), repr(pair), json.dumps(json.dumps(pair)), f"{key}={part}&"))
        parts.append(part)
    text = rng.choice(("", " ", '"')).join(parts)
    return rng.choice((text, text, text.upper(), json.dumps(text), json.dumps({"a": json.dumps({"b": text})})))


@pytest.mark.parametrize("seed", range(20))
def test_looking_for_markers_first_hides_as_much_as_trying_everything(seed: int) -> None:
    values, keys = ("gr\xfcner-Wald", 'a"tiger'), ("national-id", "Stra\xdfe", "\u03c2_k")
    redact = Redactor(values, keys)

    def everything_tried(text: str) -> str:
        while True:
            before, copies = text, set[str]()
            for value in values:
                text = text.replace(value, REDACTED).replace(json.dumps(value)[1:-1], REDACTED)
            for _, pattern in redaction._SHAPES:
                text = re.sub(pattern, redact._hide_behind_head, text)
            text = redaction._redact_copies(redact._redact_once(text, copies), copies, redaction._hide_all)
            if text == before:
                return text

    rng = random.Random(seed)
    for _ in range(200):
        text = hostile_text(rng)
        assert redact(text) == everything_tried(text)


def test_letters_that_look_like_others_hide_no_key() -> None:
    assert Redactor()('{"pa\u017f\u017fword": "tiger-lily"}') == f'{{"pa\u017f\u017fword": "{REDACTED}"}}'
    for key in SECRET_KEYS:
        for letter, odd in (("s", "\u017f"), ("i", "\u0131"), ("i", "\u0130"), ("k", "\u212a")):
            text = json.dumps({key.replace(letter, odd): "tiger-lily"}, ensure_ascii=False)
            assert "tiger-lily" not in Redactor()(text)


def test_each_key_that_is_looked_for_ends_with_a_word_that_is_looked_for_first() -> None:
    assert all(key.endswith(redaction._LAST_WORDS) for key in SECRET_KEYS)


@pytest.mark.parametrize("cut", [10, 12, 20])
def test_a_secret_that_was_cut_off_is_hidden_too(cut: int) -> None:
    secret = "sk-proj-abcdefghijklmnop1234"
    assert secret[:cut] not in Redactor()(f'expected "x", got "{secret[:cut]}…"')
    assert Redactor(["tiger-lily-17"])("got tiger-l… and …lily-17") == f"got {REDACTED}… and …{REDACTED}"
    record = {"password": "tiger-lily-17", "message": "got tiger-lil…"}
    assert Redactor().redact_all(record) == {"password": REDACTED, "message": f"got {REDACTED}…"}


def test_a_text_that_is_json_stays_json() -> None:
    """Arguments of functions travel as JSON inside of JSON."""
    text = json.dumps({"password": "12345678", "account": 12345678, "note": "12345678"})
    expected = {"password": REDACTED, "account": 12345678, "note": REDACTED}
    assert json.loads(redaction.redact_secrets({"arguments": text})["arguments"]) == expected
    assert json.loads(Redactor().redact_all({"arguments": text})["arguments"]) == expected


@pytest.mark.parametrize(
    "piece",
    [
        *("-eyJ", "eyJ-", ".eyJ", ".eyJaaaaaaaa", "eyJaaaaaaaaa.", "sk-", "Bearer a", "://a:", '"password": "'),
        *(
            "'password': '",
            "password=",
            "-----BEGIN PRIVATE KEY-----",
            '\\"password\\": \\"',
            "a-password-",
            "https://u:p",
        ),
    ],
)
def test_redaction_takes_linear_time(piece: str) -> None:
    redact, seconds = Redactor(("tiger-lily",)), {}
    for size in (20_000, 160_000):
        since = time.perf_counter()
        redact(piece * (size // len(piece)))
        seconds[size] = time.perf_counter() - since
    assert seconds[160_000] < max(24 * seconds[20_000], 1)


@pytest.mark.parametrize("around", ["", "x", "ß", "\ud800", "\n", "K" * 5000])
def test_the_quick_search_overlooks_no_marker_and_no_key(around: str) -> None:
    """What it overlooks is not redacted. Keys may be in capitals, and in letters that are the same to IGNORECASE."""
    redactor = Redactor(keys=("Straße",))
    assert not redactor.may_find_secrets(around)
    for marker, _ in redaction._SHAPES:
        assert redactor.may_find_secrets(f"{around}{marker}{around}")
    for key in (*SECRET_KEYS, "STRASSE", "PA\u017f\u017fWORD", "api key"):
        for sign in ('"', "'", "\\", "=", ":", " =", " :"):
            assert redactor.may_find_secrets(f"{around}{key.upper()}{sign}{around}")
