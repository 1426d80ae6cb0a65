"""Secrets in lines: every sample is put together at run time, so that the repository holds none."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from collections.abc import Callable
from typing import Final

import pytest

from liza.gates.scan import secrets_in

CHANCE: Final = random.Random(7)
UPPER: Final = string.ascii_uppercase + string.digits
MIXED: Final = string.ascii_letters + string.digits


def drawn(letters: str, count: int) -> str:
    return "".join(CHANCE.choice(letters) for _ in range(count))


SAMPLES: Final[dict[str, Callable[[], str]]] = {
    "AWS id": lambda: f"id = 'AKIA{drawn(UPPER, 16)}'",
    "AWS key": lambda: f"aws_secret_access_key = '{drawn(MIXED + '/+', 40)}'",
    "GitHub": lambda: f"token: ghp_{drawn(MIXED, 36)}",
    "GitHub, fine-grained": lambda: f"export T=github_pat_{drawn(MIXED, 60)}",
    "GitLab": lambda: f"T=glpat-{drawn(MIXED, 20)}",
    "Slack": lambda: f"xoxb-{drawn(string.digits, 12)}-{drawn(string.digits, 12)}-{drawn(MIXED, 24)}",
    "OpenAI": lambda: f"sk-{drawn(MIXED, 20)}T3BlbkFJ{drawn(MIXED, 20)}",
    "OpenAI, project": lambda: f"key=sk-proj-{drawn(MIXED, 60)}",
    "Anthropic": lambda: f"ANTHROPIC_API_KEY=sk-ant-api03-{drawn(MIXED, 80)}",
    "Google": lambda: f"'AIza{drawn(MIXED, 35)}'",
    "Stripe": lambda: f"sk_live_{drawn(MIXED, 24)}",
    "npm": lambda: f"//registry.example/:_authToken=npm_{drawn(MIXED, 36)}",
    "private key": lambda: "-----BEGIN " + "RSA PRIVATE" + " KEY-----",
    "private key, new": lambda: "-----BEGIN " + "OPENSSH PRIVATE" + " KEY-----",
    "password": lambda: f'db_password = "{drawn(MIXED, 20)}"',
    "far in a long line": lambda: "x" * 20_000 + f" AKIA{drawn(UPPER, 16)} " + "y" * 20_000,
}

HARMLESS: Final[dict[str, Callable[[], str]]] = {
    "npm lock": lambda: f'"integrity": "sha512-{base64.b64encode(CHANCE.randbytes(64)).decode()}",',
    "poetry lock": lambda: f'{{file = "a.whl", hash = "sha256:{hashlib.sha256(b"a").hexdigest()}"}},',
    "go sum": lambda: f"example.org/x v1.0.0 h1:{base64.b64encode(CHANCE.randbytes(32)).decode()}",
    "digest of a password": lambda: (
        f'password_sha = "{hashlib.sha1(b"a", usedforsecurity=False).hexdigest()}"'
    ),
    "commit": lambda: f"base_commit: {hashlib.sha1(b'b', usedforsecurity=False).hexdigest()}",
    "uuid": lambda: f'secret_id = "{uuid.UUID(bytes=CHANCE.randbytes(16))}"',
    "fixture": lambda: f'PICTURE = "{base64.b64encode(CHANCE.randbytes(300)).decode()}"',
    "example of a vendor": lambda: "AKIAIOSFODNN7" + "EXAMPLE",
    "placeholder": lambda: 'password = "your-password-goes-here"',
    "environment": lambda: 'token = os.environ["SERVICE_TOKEN_FOR_TESTS"]',
    "variable": lambda: "password = settings.database.password",
    "template": lambda: 'api_key: "${SERVICE_API_KEY_2024}"',
    "words": lambda: 'secret = "correct horse battery staple"',
    "url": lambda: 'token_url = "https://auth.example.org/oauth2/token"',
    "test": lambda: 'client.login(username="ada", password="test-password-1")',
    "task name": lambda: "task-and-something-that-is-longer-than-a-token",
    "sentence": lambda: "The private key of a user is never stored; see the API key rotation guide.",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_secret_is_found_and_not_repeated(name: str) -> None:
    """The kind is told, and not one piece of the secret."""
    line = SAMPLES[name]()

    kinds = list(secrets_in(line))

    assert kinds
    assert all(kind not in line or kind == "Private Key" for kind in kinds)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_random_is_none(name: str) -> None:
    """Lock files, hashes, ids, fixtures and placeholders are everywhere in honest work."""
    for _ in range(20):
        assert list(secrets_in(HARMLESS[name]())) == []
