"""Secrets in text, found by `detect-secrets`; what is found is never repeated, only where and of which kind.

Its detectors of known tokens are used as they are, and two that guess (a password by its name, a random
string by its entropy) only where both agree: either alone cries at lock files, hashes and fixtures. Nothing
is verified over the network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.high_entropy_strings import HighEntropyStringsPlugin

# Tokens that came after the last release of the library.
_EXTRA_TOKENS: Final = {
    "Anthropic Token": re.compile(r"(?<![\w-])sk-ant-[\w-]{24,}"),
    "OpenAI Token": re.compile(r"(?<![\w-])sk-(?:proj|svcacct|admin)-[\w-]{40,}"),
    "GitHub Token": re.compile(r"(?<![\w-])github_pat_\w{40,}"),
    "Google API Key": re.compile(r"(?<![\w-])AIza[\w-]{35}(?![\w-])"),
    "Hugging Face Token": re.compile(r"(?<![\w-])hf_[A-Za-z0-9]{34,}"),
    "Private Key": re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----"),
}
# A line without any of these has none of the tokens: looking for fixed letters is fast, patterns are not.
_HINTS: Final = re.compile(
    r"A3T|ABIA|ACCA|AKIA|ASIA|(?i:aws)|AccountKey|gh[pousr]_|gl[a-z]+-|GR1348941|github_pat_|-us\d|_authToken|sk-"
    r"|PRIVATE KEY|PuTTY|pypi-|SG\.|(?i:xox)|hooks\.slack|sq0|[rs]k_live|AIza|hf_|\d{8}:|"
    r"AC[a-z0-9]{32}|SK[a-z0-9]{32}|[MNO][\w-]{23,25}\."
)

_ASSIGNED: Final = re.compile(
    r"(?:passw(?:or)?d|passwd|pwd|secret|token|api_?key|auth_?key|access_?key|private_?key|credential)s?\w*"
    r"[\"']?\s*(?:=|:=|:|=>)\s*[\"'`](?P<value>[^\"'`\s]{12,200})[\"'`]",
    re.IGNORECASE,
)
# Bits a sign; words and placeholders stay below, random passwords of 16 signs do not.
LEAST_ENTROPY: Final = 3.6
_PLACEHOLDER: Final = re.compile(
    r"example|sample|dummy|fake|placeholder|changeme|change[-_]me|your|xxx|test|mock|\.\.\.|<|\$\{|\{\{|%\(|^/|://"
    r"|^[a-z]+(?:[-_. ][a-z]+)+$|^[\w.]+\(",
    re.IGNORECASE,
)
_DIGEST: Final = re.compile(
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{128}|sha\d+-.*)", re.IGNORECASE
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
# The value that a vendor's documentation prints is nobody's.
_KNOWN_EXAMPLE: Final = re.compile(r"EXAMPLE(?:KEY)?$")
LONGEST_LINE: Final = 5000  # signs of a line that are looked at in one piece; minified code is one line
_OVERLAP: Final = 500


@cache
def _detectors() -> tuple[RegexBasedDetector, ...]:
    """Return the detectors that are certain enough to be believed alone."""
    # The library takes a fifth of a second to import, and only this gate needs it.
    from detect_secrets.plugins import (  # noqa: PLC0415
        aws,
        azure_storage_key,
        discord,
        github_token,
        gitlab_token,
        mailchimp,
        npm,
        openai,
        private_key,
        pypi_token,
        sendgrid,
        slack,
        square_oauth,
        stripe,
        telegram_token,
        twilio,
    )

    return (
        aws.AWSKeyDetector(),
        azure_storage_key.AzureStorageKeyDetector(),
        discord.DiscordBotTokenDetector(),
        github_token.GitHubTokenDetector(),
        gitlab_token.GitLabTokenDetector(),
        mailchimp.MailchimpDetector(),
        npm.NpmDetector(),
        openai.OpenAIDetector(),
        private_key.PrivateKeyDetector(),
        pypi_token.PypiTokenDetector(),
        sendgrid.SendGridDetector(),
        slack.SlackDetector(),
        square_oauth.SquareOAuthDetector(),
        stripe.StripeDetector(),
        telegram_token.TelegramBotTokenDetector(),
        twilio.TwilioKeyDetector(),
    )


@cache
def _entropy_detector() -> HighEntropyStringsPlugin:
    from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString  # noqa: PLC0415

    return Base64HighEntropyString(limit=LEAST_ENTROPY)


def secrets_in(line: str) -> Iterator[str]:
    """Yield the kind of each secret on *line*, and nothing of the secret itself."""
    for start in range(0, max(len(line), 1), LONGEST_LINE - _OVERLAP):
        piece = line[start : start + LONGEST_LINE]
        yield from sorted({*_tokens(piece), *_passwords(piece)})


def _tokens(line: str) -> Iterator[str]:
    if not _HINTS.search(line):
        return
    for kind, pattern in _EXTRA_TOKENS.items():
        if pattern.search(line):
            yield kind
    for detector in _detectors():
        if any(not _KNOWN_EXAMPLE.search(secret) for secret in detector.analyze_string(line)):
            yield detector.secret_type


def _passwords(line: str) -> Iterator[str]:
    for match in _ASSIGNED.finditer(line):
        value = match["value"]
        if _PLACEHOLDER.search(value) or _DIGEST.fullmatch(value) or _UUID.search(value):
            continue
        if (
            len({sign.isdigit() for sign in value}) > 1
            and _entropy_detector().calculate_shannon_entropy(value) > LEAST_ENTROPY
        ):
            yield "Password"
