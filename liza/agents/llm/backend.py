"""A model as an agent: its conversation is a process like any other agent, with the same limits."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import liza
from liza.agents.metering import spent_in, usd_in
from liza.agents.protocol import Reply, visit_of
from liza.agents.recording import STDOUT, file_brief
from liza.domain.answers import Step
from liza.domain.record import Line, Record, Time, utc_now
from liza.domain.spending import Usage
from liza.system import process
from liza.system.masking import secrets_of
from liza.system.run_control import Ending
from liza.system.sandbox.bubblewrap import UNGUARDED, files_named
from liza.system.sandbox.environment import HEADLESS, allowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.agents.protocol import Brief
    from liza.system.process import Outcome
    from liza.system.run_control import Stop
    from liza.system.sandbox.bubblewrap import Warden

FINISHED: Final = '{"finished": '
MOST_QUOTED: Final = 300  # characters of what a conversation that broke down said last
# Beside NAME_API_KEY, NAME_API_BASE and NAME_BASE_URL of the provider NAME, what some need.
ALSO: Final[dict[str, tuple[str, ...]]] = {
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
QUIET: Final = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "PYTHONUNBUFFERED": "1"}
PACKAGE: Final = Path(liza.__file__).resolve().parent
# This very package, and never one in the worktree; a PYTHONPATH would reach the model's commands, too.
_MAIN: Final = (
    f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r}); "
    "from liza.agents.llm.__main__ import main; sys.exit(main())"
)


class Job(Record):
    """What the process of a conversation is told."""

    model: Line
    effort: Line | None = None
    step: Step
    prompt: str
    cwd: Path
    folder: Path


class Finished(Record):
    """What it says at its end."""

    ending: Ending
    text: str = ""
    why: str = ""
    reset: Time | None = None
    usage: Usage = Usage()


def passing(model: str) -> tuple[str, ...]:
    """Return the names of the variables that reach the provider of *model*, and no other's."""
    provider = model.partition("/")[0].casefold() if "/" in model else "openai"
    stem = provider.upper()
    return (f"{stem}_API_KEY", f"{stem}_API_BASE", f"{stem}_BASE_URL", *ALSO.get(provider, ()))


class Llm:
    """Runs a conversation with *model* for every brief; *python* is who has litellm."""

    def __init__(
        self,
        model: str,
        *,
        effort: str | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        warden: Warden = UNGUARDED,
    ) -> None:
        self._model = model
        self._effort = effort
        self._python = python
        self._warden = warden
        self._environment = allowed(os.environ if environment is None else environment, passing(model))

    def run(self, brief: Brief, stop: Stop) -> Reply:
        began = utc_now()
        file_brief(brief)
        environment = self._environment | HEADLESS | QUIET | dict(brief.environment)
        told = Job(
            model=self._model,
            effort=self._effort,
            step=brief.step,
            prompt=brief.prompt,
            cwd=self._warden.path_inside(brief.cwd),
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
        named = files_named(self._environment, passing(self._model))
        visit = visit_of(brief)._replace(shows=(str(PACKAGE), *named))
        with self._warden.caged(job, visit) as caged:
            outcome = process.run(caged, stop)
        return _replied(outcome, brief, began)


def _replied(outcome: Outcome, brief: Brief, began: Time) -> Reply:
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
    if outcome.ending is not Ending.DONE:
        return reply.but(usage=spent_in(outcome.out) or reply.usage)
    done = _finished(outcome.out)
    if done is None:
        words = " ".join((outcome.err or outcome.out).split())[-MOST_QUOTED:]
        return reply.but(ending=Ending.CRASHED, why=f"the conversation broke down: {words or 'no word'}")
    return reply.but(**{name: getattr(done, name) for name in Finished.model_fields})


def _finished(out: str) -> Finished | None:
    last = next((line for line in reversed(out.splitlines()) if line.startswith(FINISHED)), None)
    try:
        return Finished.model_validate(json.loads(last)["finished"]) if last else None
    except ValueError:
        return None
