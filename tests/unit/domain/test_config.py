"""What the settings refuse: values that would do nothing."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from liza.domain.config import Notify, SandboxConfig


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mode": "off", "network": "none"}, "network does nothing while mode is `off`"),
        ({"mode": "off", "show": ["~/x"], "write": ["~/y"]}, "show, write do nothing while mode is `off`"),
        ({"mode": "off", "memory_mb": 100}, "memory_mb does nothing"),
        ({"mode": "off", "file_mb": None}, "file_mb does nothing"),
        ({"hosts": ["a.b"]}, "hosts do nothing while network is `full`; set it to `model-only`"),
        ({"network": "none", "hosts": ["a.b"]}, "hosts do nothing while network is `none`"),
        ({"network": "model-only", "hosts": ["https://a.b"]}, "'https://a.b' is no host"),
        ({"network": "model-only", "hosts": ["a.b:https"]}, "'a.b:https' is no host"),
        ({"network": "model-only", "hosts": ["a.b:70000"]}, "'a.b:70000' is no host"),
        ({"network": "model-only", "hosts": ["a b"]}, "'a b' is no host"),
    ],
)
def test_what_would_do_nothing_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        SandboxConfig.model_validate(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "off", "processes": 10},
        {"mode": "off", "network": "full", "memory_mb": 8192},
        {"network": "model-only", "hosts": ["a.b", "*.a.b:8443", "localhost:1", "[::1]:80", "[::1]"]},
        {"network": "none", "memory_mb": None},
    ],
)
def test_what_acts_is_taken(settings: dict[str, Any]) -> None:
    found = SandboxConfig.model_validate(settings)

    assert {name: found.model_dump(mode="json")[name] for name in settings} == settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"webhook": "hooks.example/liza"}, "is no web address; give one that begins with `https://`"),
        ({"secret_env": "TEAM_SECRET"}, "secret_env does nothing without a webhook"),
    ],
)
def test_a_notification_that_could_never_be_sent_is_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Notify.model_validate(settings)


def test_the_secret_of_a_webhook_may_have_any_name() -> None:
    settings = {"webhook": "https://hooks.example/liza", "secret_env": "TEAM_KEY"}

    assert Notify.model_validate(settings).model_dump(include=set(settings)) == settings
