"""A coding program as an agent: its row says how it is run, its parser what its output means."""

from __future__ import annotations

import logging
import os
import shutil
from string import Template
from typing import TYPE_CHECKING, Final

from liza.agents.clis.private_home import PrivateHome, prompt_path, setup_for, substitute
from liza.agents.clis.spec import PERMISSION_BY_STEP, Effort, Permission, PromptInput, RunOutput
from liza.agents.command import exit_words, liza_variables, start_obstacle
from liza.agents.protocol import (
    STDOUT,
    Provenance,
    Reply,
    Session,
    Usage,
    is_session_broken,
    previous_run,
    recorded_output,
    recorded_reply,
    tenant_of,
    with_cost,
    write_brief,
)
from liza.domain.record import utc_now
from liza.errors import UsageError
from liza.system import process
from liza.system.files import Mask, secrets_of
from liza.system.run_control import RunEnding
from liza.system.sandbox.bubblewrap import HEADLESS, UNSANDBOXED, Tenant, allowed_environment, files_named

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.agents.clis.spec import Cli, ParsedRun, PermissionFlags, Words
    from liza.agents.protocol import Brief
    from liza.domain.config import AgentChoice
    from liza.system.process import ProcessOutcome
    from liza.system.run_control import RunControl
    from liza.system.sandbox.bubblewrap import Sandbox

log = logging.getLogger(__name__)

# What a provider said counts more than that its program went on trying until a limit of ours ended it.
_PROVIDER_ENDINGS: Final = {RunEnding.AUTH, RunEnding.QUOTA, RunEnding.RATE_LIMITED, RunEnding.CONTEXT_FULL}
# How a run ends that its program can go on with: somebody or something else put an end to it.
RESUMABLE: Final = frozenset(
    {RunEnding.STOPPED, RunEnding.CRASHED, RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH}
)
RESUME_PROMPT: Final = (
    "You were interrupted while you worked on what follows. Look at what is there of it, and go on; what "
    "follows is the task as it is now."
)
_LIMIT_ENDINGS: Final = {RunEnding.TIMEOUT, RunEnding.SILENT, RunEnding.SLOW_START}


class CliAgent:
    """Runs *cli* as *choice* says; *homes* is a folder in which each worker's programs get a home."""

    def __init__(
        self,
        cli: Cli,
        choice: AgentChoice,
        homes: Path,
        *,
        environment: Mapping[str, str] | None = None,
        sandbox: Sandbox = UNSANDBOXED,
    ) -> None:
        self._cli = cli
        self._choice = choice
        self._homes = homes
        self._sandbox = sandbox
        self._user = dict(os.environ if environment is None else environment)
        self._effort = effort_of(cli, choice.effort)

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        left = None if brief.session else resumable_session(self._cli, brief)
        if left is not None:
            reply = self._once(brief.replace(session=left, prompt=f"{RESUME_PROMPT}\n\n{brief.prompt}"), stop)
            if not is_session_broken(reply):
                return reply
            log.warning("%s: the session %s is broken, and is begun anew: %s", brief.run, left.id, reply.why)
        return self._once(brief, stop)

    def _once(self, brief: Brief, stop: RunControl) -> Reply:
        began = utc_now()
        home = PrivateHome(
            self._homes / brief.run.split(".")[0], self._cli, self._user, keep=brief.session is not None
        )
        environment = self._environment(brief, home)
        argv = self.argv(brief, home.path)
        if why := start_obstacle(argv, brief.cwd, environment.get("PATH", os.defpath)):
            return Reply(ending=RunEnding.NOT_STARTED, why=why, began=began)
        secrets = [*secrets_of(environment), *home.secrets]
        prompt = f"{brief.prompt}\n{self._cli.advice}\n" if self._cli.advice else brief.prompt
        home.prompt(prompt)
        job = process.Job(
            argv=argv,
            cwd=brief.cwd,
            folder=brief.folder,
            environment=environment,
            feed=prompt.encode(errors="replace") if self._cli.feed is PromptInput.STDIN else b"",
            limits=brief.limits,
            secrets=secrets,
            meter=self._meter,
        )
        try:
            with self._sandbox.wrap(job, self._tenant(brief)) as wrapped:
                outcome = process.run_job(wrapped, stop)
        finally:
            home.remove_logins()
        return self._reply_to(brief, began, outcome, _mask_text(home.report(), secrets))

    def _reply_to(self, brief: Brief, began: datetime, outcome: ProcessOutcome, report: str) -> Reply:
        """Return what the run comes to, by what the program printed and wrote into its *report*."""
        parsed = self._cli.parse(
            RunOutput(outcome.out, outcome.err, outcome.code, report), utc_now().astimezone()
        )
        ending, why = _ending_of(self._cli.name, outcome, parsed)
        usage, session = _usage_and_session(self._cli, parsed, brief)
        return Reply(
            ending=ending,
            why=why,
            text=parsed.text,
            code=outcome.code,
            usage=usage,
            began=began,
            seconds=outcome.seconds,
            transcript=brief.folder / STDOUT,
            reset=parsed.reset if ending is parsed.ending else None,
            session=session,
            survivors=outcome.survivors,
        )

    def _meter(self, out: str) -> float | None:
        """Return what a run that printed *out* has cost so far: by its tokens, else by the length of that."""
        usage = self._cli.parse(RunOutput(out, "", None, ""), utc_now().astimezone()).usage
        return with_cost(usage, self._choice.model, "", out).usd

    def _tenant(self, brief: Brief) -> Tenant:
        """Return what the sandbox has to know; the private home that was prepared is its home."""
        cli, own = self._cli, self._choice.own_home
        named = files_named(self._user, (*cli.keys, *cli.env_passthrough, *(self._choice.passing or ())))
        return tenant_of(brief)._replace(
            may_nest=cli.brings_own_sandbox and cli.flags_in_sandbox is None,
            shows=(*named, *(cli.credentials if own else ())),
            keeps=cli.writable if own else (".",),
            hosts=cli.endpoints,
        )

    def _permission_flags(self, brief: Brief) -> PermissionFlags:
        in_sandbox = self._cli.flags_in_sandbox if self._sandbox.is_sandboxed else None
        return (
            in_sandbox
            or self._cli.permission_flags[
                Permission.NONE if brief.only_answer else PERMISSION_BY_STEP[brief.step]
            ]
        )

    def argv(self, brief: Brief, home: Path) -> Words:
        """Return the whole command line of a run."""
        cli, choice = self._cli, self._choice
        known = {
            "home": str(home),
            "prompt": str(prompt_path(home, cli)),
            "report": str(home / (cli.report or "report")),
            "model": choice.model or "",
            "effort": self._effort or "",
            "session": brief.session.id if brief.session else "",
            "run": brief.run,
        }
        words = (
            *(cli.resume if brief.session and cli.resume else cli.begin),
            *cli.words,
            *self._permission_flags(brief).words,
            *(cli.model if choice.model else ()),
            *(cli.effort if self._effort else ()),
            *(choice.arguments or ()),
            *cli.prompt,
        )
        return (
            *program_of(cli, choice, self._user),
            *(Template(word).safe_substitute(known) for word in words),
        )

    def _environment(self, brief: Brief, home: PrivateHome) -> dict[str, str]:
        cli = self._cli
        also = {*cli.keys, *cli.env_passthrough, *(self._choice.passing or ())}
        found = allowed_environment(self._user, also)
        if not self._choice.own_home:
            found = {
                name: value for name, value in found.items() if not name.startswith("XDG_")
            } | home.populate(self._permission_flags(brief))
        known = {**self._user, "home": found["HOME"] if self._choice.own_home else str(home.path)}
        setting = setup_for(cli, self._user)
        ours = {**cli.environment, **self._permission_flags(brief).environment}
        if self._choice.own_home:
            ours = {name: value for name, value in ours.items() if "$home" not in value}
        return {
            **found,
            **HEADLESS,
            **substitute(ours, known),
            **substitute(setting.environment if setting else {}, known),
            **brief.environment,
            **liza_variables(brief, write_brief(brief)),
        }


def program_of(cli: Cli, choice: AgentChoice, user: Mapping[str, str]) -> Words:
    """Return what starts *cli*: what the settings say, else the first of its names that is on the PATH."""
    if choice.command:
        return choice.command
    path = user.get("PATH", os.defpath)
    return (next((name for name in cli.programs if shutil.which(name, path=path)), cli.programs[0]),)


def effort_of(cli: Cli, word: str | None) -> str | None:
    """Return what *cli* calls an effort; None where none is wanted, or it has none."""
    if word is None:
        return None
    try:
        effort = Effort(word.lower())
    except ValueError:
        known = ", ".join(Effort)
        raise UsageError(f"there is no effort {word!r}; known: {known}") from None
    return cli.efforts.get(effort)


def _mask_text(text: str, secrets: list[str]) -> str:
    mask = Mask(secrets)
    return (mask.feed(text.encode(errors="replace")) + mask.rest()).decode(errors="replace")


def _ending_of(name: str, outcome: ProcessOutcome, parsed: ParsedRun) -> tuple[RunEnding, str]:
    if outcome.ending in _LIMIT_ENDINGS and parsed.ending in _PROVIDER_ENDINGS:
        return parsed.ending, f"{name}: {parsed.why}; {outcome.why}"
    if outcome.ending is not RunEnding.DONE:
        return outcome.ending, outcome.why
    if parsed.ending is RunEnding.CRASHED:
        return RunEnding.CRASHED, f"{name} ended {exit_words(outcome.code)}; {parsed.why}"
    return parsed.ending, f"{name}: {parsed.why}" if parsed.why else ""


def resumable_session(cli: Cli, brief: Brief) -> Session | None:
    """Return the session of this worker's previous run, if that run had the same task and step and did not
    finish.

    Any later run of the worker empties the home, and with it what a session needs.
    """
    last = previous_run(brief) if cli.resume else None
    if last is None or (last.task, last.step) != (brief.task, brief.step):
        return None
    reply = recorded_reply(last)
    if reply is not None and (reply.ending not in RESUMABLE or (last.session and is_session_broken(reply))):
        return None
    return _session_of(cli, cli.parse(RunOutput(recorded_output(last)), utc_now().astimezone()), last)


def _session_of(cli: Cli, parsed: ParsedRun, brief: Brief) -> Session | None:
    if not cli.resume:
        return None
    name = (brief.session.id if brief.session else brief.run) if cli.names_sessions else parsed.session
    usage = parsed.usage
    return (
        Session(id=name, tokens_in=usage.tokens_in or 0, tokens_out=usage.tokens_out or 0) if name else None
    )


def _usage_and_session(cli: Cli, parsed: ParsedRun, brief: Brief) -> tuple[Usage, Session | None]:
    """Return the usage of this run alone, and the session with the usage of all its runs."""
    usage, before = parsed.usage, brief.session
    session = _session_of(cli, parsed, brief)
    if before and cli.is_cumulative and usage.provenance is Provenance.REPORTED:
        usage = usage.replace(
            tokens_in=max(0, (usage.tokens_in or 0) - before.tokens_in),
            tokens_out=max(0, (usage.tokens_out or 0) - before.tokens_out),
        )
    return usage, session
