"""Which values are secrets."""

import json

import pytest

from xnagent.core.secrets import is_trivial, known_secrets

LINES = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PEM = f"-----BEGIN PRIVATE KEY-----\n{LINES}\n-----END PRIVATE KEY-----\n"


def values(**environ: str) -> dict[str, str]:
    return {secret.value: secret.name for secret in known_secrets(environ)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "sk-test-1"),
        ("ANTHROPIC_API_KEY", "sk-test-2"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG"),
        ("GH_TOKEN", "ghp_abcdefgh"),
        ("MY_SERVICE_PASSWORD", "correct horse battery"),
        ("DB_PASS", "x7Kq-99Lm"),
        ("SESSION_COOKIE", "a1b2c3d4e5"),
        ("GIT_CREDENTIALS", "abcdefg-123"),
    ],
)
def test_B074_B075_variables_named_like_secrets_are(name: str, value: str):
    assert values(**{name: value}) == {value: name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_TOKENS", "1000000000"),
        ("API_KEY", "short"),
        ("API_KEY", ""),
        ("API_KEY", "aaaaaaaaaaaa"),
        ("PASSWORD", "changeme"),
        ("PASSWORD", "production"),
        ("SECRET_KEY", "20261130"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/me/.config/gcloud/key.json"),
        ("TOKEN_URL", "https://example.com/oauth/token"),
        ("TOKENIZERS_PARALLELISM", "abcdefgh1"),
        ("KEYBOARD_LAYOUT", "qwertzuiop"),
        ("SSH_PUBLIC_KEY", "ssh-ed25519 AAAAC3Nz"),
        ("PWD", "somewhere-else"),
        ("PATH", "usr-bin-things"),
        ("HOME", "home-of-someone"),
    ],
)
def test_what_only_looks_like_one_is_not(name: str, value: str):
    assert values(**{name: value}) == {}


def test_B075_credentials_in_addresses_are_secret_whatever_the_variable_is_called():
    environ = {
        "DATABASE_URL": "postgres://app:s3cr%40t-pw9@db.example/x?sslmode=off",
        "GATEWAY": "https://gw.example/v1?api_key=k4k4-9zz8&page=12345678",
        "REMOTE": "https://ghp_0123456789abcdef@git.example/x.git",
        "PROXY": "http://me@proxy.example:8080",
    }
    found = values(**environ)
    assert found == {
        "s3cr%40t-pw9": "DATABASE_URL",
        "s3cr@t-pw9": "DATABASE_URL",
        "k4k4-9zz8": "GATEWAY",
        "ghp_0123456789abcdef": "REMOTE",
    }


def test_of_a_key_in_a_file_format_the_key_is_secret():
    body = LINES.replace("\n", "")
    assert values(TLS_KEY=PEM) == {body: "TLS_KEY"}
    account = json.dumps({"type": "service_account", "private_key": PEM, "client_email": "me@x.example"})
    assert values(GOOGLE_CREDENTIALS=account) == {body: "GOOGLE_CREDENTIALS"}
    assert values(GOOGLE_CREDENTIALS="{not json") == {}


def test_what_is_certain_needs_no_name():
    found = known_secrets({"ODD": "production", "B_KEY": "production"}, certain=["ODD", "MISSING"])
    assert [(secret.name, secret.value) for secret in found] == [("ODD", "production")]


def test_one_value_has_one_name():
    assert values(A_KEY="same-value-1", B_KEY="same-value-1") == {"same-value-1": "A_KEY"}


def test_trivial_values():
    assert is_trivial("~/x/y/zzzz")
    assert is_trivial("Password")
    assert not is_trivial("1234-5678-9012-3456")
