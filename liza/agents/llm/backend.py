"""A model as an agent: its conversation is a process like any other agent, with the same limits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import liza
from liza.agents.protocol import STDOUT, Reply, tenant_of, usage_in, usd_in, write_brief
from liza.domain.answers import Step
from liza.domain.model import Usage
from liza.domain.record import NonEmptyStr, Record, Time, utc_now
from liza.system import process
from liza.system.files import secrets_of
from liza.system.run_control import RunEnding
from liza.system.sandbox.bubblewrap import HEADLESS, UNSANDBOXED, allowed_environment, files_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.agents.protocol import Brief
    from liza.system.process import ProcessOutcome
    from liza.system.run_control import RunControl
    from liza.system.sandbox.bubblewrap import Sandbox

REPORT_PREFIX: Final = '{"finished": '
MOST_QUOTED: Final = 300  # characters of what a conversation that broke down said last
# Beside NAME_API_KEY, NAME_API_BASE and NAME_BASE_URL of the provider NAME, what some need.
EXTRA_VARIABLES: Final[dict[str, tuple[str, ...]]] = {
    "openai": ("OPENAI_ORGANIZATION", "OPENAI_PROJECT"),
    "gemini": ("GOOGLE_API_KEY",),
    "vertex_ai": ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_PROJECT", "VERTEXAI_LOCATION"),
    "azure": ("AZURE_API_VERSION",),
    "bedrock": (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("AWS_REGION", "AWS_REGION_NAME", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"),
    ),
    "together_ai": ("TOGETHERAI_API_KEY",),
}
# Its price list would be fetched from the network at every start; the one that it brings along will do.
LITELLM_ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "PYTHONUNBUFFERED": "1",
}
PACKAGE: Final = Path(liza.__file__).resolve().parent
# This very package, and never one in the worktree; a PYTHONPATH would reach the model's commands, too.
_MAIN: Final = (
    f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
    "from liza.agents.llm.__main__ import main; sys.exit(main())"
)


class ConversationRequest(Record):
    """What the process of a conversation is told."""

    model: NonEmptyStr
    effort: NonEmptyStr | None = None
    step: Step
    prompt: str
    cwd: Path
    folder: Path


class ConversationReport(Record):
    """What it says at its end."""

    ending: RunEnding
    text: str = ""
    why: str = ""
    reset: Time | None = None
    usage: Usage = Usage()


def provider_variables(model: str) -> tuple[str, ...]:
    """Return the names of the variables that reach the provider of *model*, and no other's."""
    provider = model.partition("/")[0].casefold() if "/" in model else "openai"
    stem = provider.upper()
    return (f"{stem}_API_KEY", f"{stem}_API_BASE", f"{stem}_BASE_URL", *EXTRA_VARIABLES.get(provider, ()))


class LlmAgent:
    """Runs a conversation with *model* for every brief; *python* is who has litellm."""

    def __init__(
        self,
        model: str,
        *,
        effort: str | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        sandbox: Sandbox = UNSANDBOXED,
    ) -> None:
        self._model = model
        self._effort = effort
        self._python = python
        self._sandbox = sandbox
        self._environment = allowed_environment(
            os.environ if environment is None else environment, provider_variables(model)
        )

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        began = utc_now()
        write_brief(brief)
        environment = self._environment | HEADLESS | LITELLM_ENVIRONMENT | dict(brief.environment)
        told = ConversationRequest(
            model=self._model,
            effort=self._effort,
            step=brief.step,
            prompt=brief.prompt,
            cwd=self._sandbox.path_inside(brief.cwd),
            folder=brief.folder,
        )
        job = process.Job(
            argv=(self._python, "-P", "-c", _MAIN),
            cwd=brief.cwd,
            folder=brief.folder,
            environment=environment,
            feed=told.model_dump_json().encode(errors="replace"),
            limits=brief.limits,
            secrets=secrets_of(environment),
            meter=lambda out: usd_in(out, self._model),
        )
        named = files_named(self._environment, provider_variables(self._model))
        tenant = tenant_of(brief)._replace(shows=(str(PACKAGE), *named))
        with self._sandbox.wrap(job, tenant) as wrapped:
            outcome = process.run_job(wrapped, stop)
        return _reply_of(outcome, brief, began)


def _reply_of(outcome: ProcessOutcome, brief: Brief, began: Time) -> Reply:
    reply = Reply(
        ending=outcome.ending,
        why=outcome.why,
        text="",
        code=outcome.code,
        began=began,
        seconds=outcome.seconds,
        transcript=brief.folder / STDOUT,
        survivors=outcome.survivors,
    )
    if outcome.ending is not RunEnding.DONE:
        return reply.replace(usage=usage_in(outcome.out) or reply.usage)
    done = _report_in(outcome.out)
    if done is None:
        words = " ".join((outcome.err or outcome.out).split())[-MOST_QUOTED:]
        return reply.replace(
            ending=RunEnding.CRASHED, why=f"the conversation broke down: {words or 'no word'}"
        )
    return reply.replace(**{name: getattr(done, name) for name in ConversationReport.model_fields})


def _report_in(out: str) -> ConversationReport | None:
    last = next((line for line in reversed(out.splitlines()) if line.startswith(REPORT_PREFIX)), None)
    try:
        return ConversationReport.model_validate(json.loads(last)["finished"]) if last else None
    except ValueError:
        return None
