"""The protocol of agents: a brief goes in, a reply comes out, and every run is on disk with what it cost."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from liza.domain.answer_parsing import reported_usage
from liza.domain.answers import Step, lines_by_path
from liza.domain.config import Count
from liza.domain.model import USD_DIGITS, ReportedUsage, Role
from liza.domain.model import Provenance as Provenance  # noqa: PLC0414 - whoever makes a reply needs it
from liza.domain.model import Usage as Usage  # noqa: PLC0414 - as above
from liza.domain.problems import violations_from
from liza.domain.record import Id, NonEmptyStr, Record, Time
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import LizaError, UsageError
from liza.repo.snapshot import Patch
from liza.system.files import environment_mask, overwrite
from liza.system.run_control import RunControl, RunEnding, RunLimits
from liza.system.sandbox.bubblewrap import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        message = f"{str(path)!r} is relative: an agent must not depend on where Liza was started"
        raise ValueError(message)
    return path


Absolute = Annotated[Path, AfterValidator(_absolute)]


class Session(Record):
    """A conversation that a program can go on with, and what all of it has used so far."""

    id: NonEmptyStr
    tokens_in: Count = 0
    tokens_out: Count = 0


class Brief(Record):
    """One run: who is asked to do what, where, and for how long."""

    run: Id
    role: Role
    step: Step
    hat: str = ""  # the role of the workflow that is asked, where it is another than the kind of worker
    phase: str = ""  # of the workflow, in which the task is
    task: Id | None = None
    iteration: Count = 0
    prompt: str
    cwd: Absolute
    folder: Absolute  # where this run is recorded; its name is the run's
    limits: RunLimits = RunLimits()
    session: Session | None = None  # to go on with, where the program can
    is_again: bool = False  # the same was asked before, and the answer could not be used
    only_answer: bool = False  # the work is done: its answer is asked for, and nothing else
    facts: Mapping[str, Any] = Field(default_factory=dict)  # whatever else an agent may want to know
    # May hold keys: it reaches the agent and no file.
    environment: Mapping[str, str] = Field(default_factory=dict, exclude=True, repr=False)


class Reply(Record):
    """What came of a run."""

    ending: RunEnding
    text: str = ""
    why: str = ""  # which limit tripped or what went wrong, as a sentence; empty where all went well
    code: int | None = None  # exit code; negative for a signal, as subprocess has it
    usage: Usage = Usage()
    began: Time
    seconds: Annotated[float, Field(ge=0)] = 0.0
    transcript: Path | None = None  # the whole of what it printed
    reset: Time | None = None  # when a rate limit or a quota ends
    session: Session | None = None  # that a later run can go on with
    survivors: tuple[str, ...] = ()  # processes of the run that could not be ended


AT_ONCE: Final = 1.0  # seconds; whoever ends sooner with an error has not worked
STARTING: Final = 30.0  # seconds; the same where it has said nothing at all
_REFUSED_BY_PROVIDER: Final = frozenset({RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH})


def is_session_broken(reply: Reply) -> bool:
    """Return whether the reply of a resumed run shows that its session cannot be resumed."""
    was_killed = reply.code is not None and reply.code < 0
    return reply.ending in {RunEnding.CRASHED, RunEnding.EMPTY} and not reply.text.strip() and not was_killed


def did_nothing(reply: Reply) -> bool:
    """Return whether no model can have worked for *reply*, so that it cost nothing."""
    if reply.usage.usd or reply.usage.tokens_out:
        return False
    is_mute = not reply.text.strip()
    match reply.ending:
        case RunEnding.NOT_STARTED:
            return True
        case RunEnding.STOPPED | RunEnding.CAPPED:
            return reply.code is None  # it was stopped before it began
        case RunEnding.CRASHED:
            # A negative code is a signal: somebody ended it, which says nothing about what it did.
            is_own = reply.code is not None and reply.code >= 0
            return is_own and reply.seconds < (STARTING if is_mute else AT_ONCE)
        case ending:
            return ending in _REFUSED_BY_PROVIDER and is_mute


def tenant_of(brief: Brief) -> Tenant:
    """Return the sandbox tenant for *brief*; only an implementation step may write."""
    writes = brief.step is Step.IMPLEMENT
    # By worker: one that lost its task may still be at work when the next one begins.
    name = f"{brief.task or brief.step}.{brief.run.partition('.')[0]}"
    return Tenant(name, task=brief.task if writes else None, writes=writes)


class Agent(Protocol):
    def run(self, brief: Brief, stop: RunControl) -> Reply:
        """Do what *brief* asks for and return what came of it; end early where *stop* says so."""
        ...


# Every run on disk with what it cost, in a form that people can read and `replay` can play back.
#
# A run's folder has `brief.json` and `prompt.md` from the start, `stdout` and `stderr` as they come, and at
# the end the change of the tree as `change.patch`, with the commits that it consists of in `change.json`, and
# `reply.json` last: a folder without it is a run that did not end.
#
# A recording is a folder of such folders, or one YAML file, which is what people write by hand.

# What a run cost: as its agent reports it, else by its model's price, else by the length of its texts.

CHARACTERS_PER_TOKEN: Final = 3  # characters a token, fewer than usual: an estimate should rather be too high
# How often a prompt is read again, since an agent sends all of it with each call of a tool.
PROMPT_READS: Final = 5
# Tokens that one run is guessed to have said, at most: what a program prints beyond that no model wrote.
MOST_TOKENS_SAID: Final = 32_000
MILLION: Final = 1_000_000

Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(Record):
    """USD for a million tokens of the models whose name fits *model*, a pattern as in a shell."""

    model: NonEmptyStr
    tokens_in: Price = Field(alias="in")
    tokens_out: Price = Field(alias="out")
    cached: Price | None = None


class PriceList(Record):
    date: NonEmptyStr
    source: NonEmptyStr
    default: ModelPrice  # for a model that is not in the list: dear, so that a cap is not passed unseen
    models: tuple[ModelPrice, ...]


@cache
def price_list() -> PriceList:
    """Return the prices that come with this Liza."""
    text = resources.files("liza.agents").joinpath("prices.yaml").read_text(encoding="utf-8")
    return PriceList.model_validate(parse_yaml(text).data)


def price_of(model: str) -> ModelPrice | None:
    """Return the price of *model*, with or without its provider before a slash; the first that fits."""
    name = model.casefold().rpartition("/")[2]
    return next((one for one in price_list().models if fnmatchcase(name, one.model)), None)


def cost(price: ModelPrice, tokens_in: int, tokens_out: int, cached: int = 0) -> float:
    cheap = min(cached, tokens_in)
    dear = price.tokens_in if price.cached is None else price.cached
    usd = (tokens_in - cheap) * price.tokens_in + cheap * dear + tokens_out * price.tokens_out
    return round(usd / MILLION, USD_DIGITS)


def with_cost(usage: Usage, model: str | None, prompt: str, text: str) -> Usage:
    """Return *usage* with what the run cost, and where that number comes from."""
    model = usage.model or model
    if usage.usd is not None:
        known = usage.provenance if usage.provenance is not Provenance.UNKNOWN else Provenance.REPORTED
        return usage.replace(model=model, provenance=known)
    price = price_of(model) if model else None
    if price and usage.tokens_in is not None and usage.tokens_out is not None:
        usd = cost(price, usage.tokens_in, usage.tokens_out, usage.tokens_cached or 0)
        return usage.replace(model=model, usd=usd, provenance=Provenance.PRICED)
    return _with_estimate(usage, model, price or price_list().default, len(prompt), len(text))


def _with_estimate(usage: Usage, model: str | None, price: ModelPrice, asked: int, said: int) -> Usage:
    tokens_in = (
        usage.tokens_in if usage.tokens_in is not None else asked * PROMPT_READS // CHARACTERS_PER_TOKEN
    )
    tokens_out = (
        usage.tokens_out
        if usage.tokens_out is not None
        else min(said // CHARACTERS_PER_TOKEN, MOST_TOKENS_SAID)
    )
    usd = cost(price, tokens_in, tokens_out, usage.tokens_cached or 0)
    return usage.replace(
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        usd=usd,
        model=model,
        provenance=Provenance.ESTIMATED,
    )


class PricingAgent:
    """An agent whose every reply says what it cost; where *guesses*, also if it has to be guessed."""

    def __init__(self, agent: Agent, model: str | None, *, guesses: bool = True) -> None:
        self._agent = agent
        self._model = model
        self._guesses = guesses

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        return self.price(self._agent.run(brief, stop), brief, stop)

    def price(self, reply: Reply, brief: Brief, stop: RunControl) -> Reply:
        """Return *reply* with what the run cost, and that a cap ended it where one did."""
        if stop.capped and reply.ending is RunEnding.STOPPED:
            reply = reply.replace(ending=RunEnding.CAPPED, why=stop.capped)
        if did_nothing(reply):
            return reply
        said = reported_usage(reply.text, prompt=brief.prompt)
        # What stands beside the answer is the last word of a program that also told it on the way.
        usage = (
            Usage(**said.model_dump())
            if said and (said.usd is not None or reply.usage == Usage())
            else reply.usage
        )
        is_told = usage.usd is not None or usage.tokens_in is not None or usage.tokens_out is not None
        if not is_told and not self._guesses:
            return reply.replace(usage=Usage(model=usage.model or self._model))
        return reply.replace(usage=with_cost(usage, self._model, brief.prompt, reply.text))


# The cost of a run while it is running, from lines `{"spent": {"usd": 0.31}}` in its output.
#
# Each line has the total since the run began, so only the last one counts.

SPENT_PREFIX: Final = '{"spent": '  # how such a line begins


def usage_in(out: str) -> Usage | None:
    """Return the usage that the last such line of *out* tells, or None where there is none."""
    for line in reversed(out.splitlines()):
        if line.startswith(SPENT_PREFIX):
            try:
                told = ReportedUsage.model_validate(json.loads(line)["spent"])
            except ValueError:  # cut, or no usage at all
                continue
            return Usage(**told.model_dump(), provenance=Provenance.REPORTED)
    return None


def usd_in(out: str, model: str | None) -> float | None:
    """Return what a run that printed *out* has cost so far, by its own word or by its tokens."""
    told = usage_in(out)
    return with_cost(told, model, "", "").usd if told else None


log = logging.getLogger(__name__)

BRIEF: Final = "brief.json"
PROMPT: Final = "prompt.md"
STDOUT: Final = "stdout"
STDERR: Final = "stderr"
PATCH: Final = "change.patch"
COMMITS: Final = "change.json"
REPLY: Final = "reply.json"

_M = TypeVar("_M", bound=BaseModel)


class TreeTracker(Protocol):
    """What a working directory holds, as git sees it; git itself lives in `liza.repo`."""

    def mark(self, cwd: Path) -> str:
        """Return a name for what is in *cwd* now."""
        ...

    def patches(self, cwd: Path, mark: str) -> Sequence[Patch]:
        """Return what was done in *cwd* since *mark*: the commits in order, then what has no commit."""
        ...

    def apply(self, cwd: Path, patch: Patch) -> None:
        """Apply the diff of *patch*, if it has one; commit all that is in *cwd* if it has a message."""
        ...


def write_brief(brief: Brief) -> Path:
    """Write what is known before a run; return the path of the brief."""
    brief.folder.mkdir(parents=True, exist_ok=True)
    known = brief.replace(
        prompt=environment_mask().text(brief.prompt), facts=environment_mask().values(dict(brief.facts))
    )
    (brief.folder / PROMPT).write_text(known.prompt, encoding="utf-8", errors="replace")
    return _overwrite_json(brief.folder / BRIEF, known.model_dump_json(indent=2))


def _overwrite_json(path: Path, text: str) -> Path:
    overwrite(path, f"{text}\n".encode(errors="replace"))
    return path


class RecordingAgent:
    """An agent that writes down what another agent does."""

    def __init__(
        self,
        agent: Agent,
        tree: TreeTracker,
        price: Callable[[Reply, Brief, RunControl], Reply] | None = None,
    ) -> None:
        self._agent = agent
        self._tree = tree
        self._price = price

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        write_brief(brief)
        mark = self._tree.mark(brief.cwd)
        # Here, since whatever becomes of an answer (the board, a log, a commit) is made of this.
        reply = self._agent.run(brief, stop)
        if self._price:
            reply = self._price(reply, brief, stop)
        reply = reply.replace(
            text=environment_mask().text(reply.text), why=environment_mask().text(reply.why)
        )
        try:
            _write_patches(brief.folder, self._tree.patches(brief.cwd, mark))
        except (
            LizaError
        ) as error:  # the agent may have destroyed its worktree; what it said is still worth having
            log.warning("%s: what it changed is not recorded: %s", brief.run, error)
        _overwrite_json(brief.folder / REPLY, reply.model_dump_json(indent=2))
        return reply


class _CommitPart(Record):
    """Which bytes of the patch file belong to which commit."""

    message: str | None = None
    size: Count


_PARTS: Final = TypeAdapter(tuple[_CommitPart, ...])


def _write_patches(folder: Path, patches: Sequence[Patch]) -> None:
    diffs = [_mask_diff(patch.diff) for patch in patches]
    (folder / PATCH).write_bytes(b"".join(diffs))
    parts = tuple(
        _CommitPart(
            message=environment_mask().text(patch.message) if patch.message else patch.message, size=len(diff)
        )
        for patch, diff in zip(patches, diffs, strict=True)
    )
    _overwrite_json(folder / COMMITS, _PARTS.dump_json(parts, indent=2).decode())


def _mask_diff(diff: bytes) -> bytes:
    """Return *diff* without secrets; what looks like one in the code for a binary file is none."""
    return (
        diff
        if b"\nGIT binary patch\n" in diff and not environment_mask().has_value(diff)
        else environment_mask().whole(diff)
    )


def _patches_in(folder: Path) -> tuple[Patch, ...]:
    if not (folder / COMMITS).exists():
        return ()
    diffs, patches, at = (folder / PATCH).read_bytes(), [], 0
    for part in _PARTS.validate_json((folder / COMMITS).read_bytes()):
        patches.append(Patch(message=part.message, diff=diffs[at : at + part.size]))
        at += part.size
    return tuple(patches)


def _check_inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0] in {"/", ".git"}:
        message = f"{path!r} is not a path inside the worktree"
        raise ValueError(message)
    return path


PathInside = Annotated[str, AfterValidator(_check_inside)]


class RecordedRun(Record):
    """One run as it can be played back: when it is called for, how long it took, what it did and said."""

    role: Role
    step: Step
    task: Id | None = None
    iteration: Count | None = None  # None stands for any
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    files: Mapping[PathInside, str] = Field(default_factory=dict)  # written whole
    delete: tuple[PathInside, ...] = ()
    commit: NonEmptyStr | None = None  # the message under which files and deletions are committed
    patches: tuple[Patch, ...] = ()
    reply: str
    ending: RunEnding = RunEnding.DONE
    why: str = ""
    reset_in: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # seconds until a limit ends
    usage: Usage = Usage()
    began: Time | None = None


class Recording(Record):
    about: str = ""
    runs: tuple[RecordedRun, ...] = Field(min_length=1)


def previous_run(brief: Brief) -> Brief | None:
    """Return the latest run of the same worker that is recorded beside *brief*, ended or not."""
    worker = brief.run.partition(".")[0]
    others = (path for path in brief.folder.parent.glob(f"{worker}.*/{BRIEF}") if path.parent != brief.folder)
    last = max(others, key=lambda path: _run_start(path.parent.name), default=None)
    try:
        return _load_record(last, Brief) if last else None
    except UsageError:  # half written by a worker that died
        return None


def _run_start(run: str) -> tuple[str, int]:
    """Return the start of a run by its id: the second, and its number within that second."""
    _, second, number, *_ = (*run.split("."), "", "")
    count = number.partition("-")[0]
    return second, int(count) if count.isdecimal() else 0


def latest_runs(names: Iterable[str]) -> frozenset[str]:
    """Return of each worker the run that it began last."""
    latest: dict[str, str] = {}
    for name in sorted(names, key=_run_start):
        latest[name.partition(".")[0]] = name
    return frozenset(latest.values())


def recorded_reply(brief: Brief) -> Reply | None:
    """Return what is recorded of the end of *brief*; None where it did not end."""
    try:
        return _load_record(brief.folder / REPLY, Reply)
    except UsageError:
        return None


def recorded_output(brief: Brief) -> str:
    """Return what the program of *brief* printed, whether or not it ended."""
    try:
        return (brief.folder / STDOUT).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def finished_runs_beside(brief: Brief) -> Iterator[Brief]:
    """Yield the briefs of the runs recorded beside this one that ended."""
    for reply in brief.folder.parent.glob(f"*/{REPLY}"):
        yield _load_record(reply.with_name(BRIEF), Brief)


def ended_run(folder: Path) -> tuple[Brief, Reply] | None:
    """Return the run of an agent that is recorded in *folder*; None where it is none, or did not end."""
    try:
        return _load_record(folder / BRIEF, Brief), _load_record(folder / REPLY, Reply)
    except UsageError:
        return None


def ended_runs(runs: Path, task: str) -> Iterator[Brief]:
    """Yield the runs of agents on *task* that ended, in the order in which they began."""
    for reply in sorted(runs.glob(f"*/{REPLY}"), key=lambda path: _run_start(path.parent.name)):
        try:
            brief = _load_record(reply.with_name(BRIEF), Brief)
        except UsageError:  # no run of an agent, or half a one
            continue
        if brief.task == task:
            yield brief


def load_recording(path: Path) -> Recording:
    """Return the recording at *path*: a folder of runs, or a YAML file."""
    if not path.exists():
        raise UsageError(f"there is no recording {path}; name a folder like .liza/runs, or a YAML file")
    return _load_folders(path) if path.is_dir() else _load_file(path)


def _load_file(path: Path) -> Recording:
    try:
        data, lines = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, BadYaml, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no recording: {error}; mend it") from error
    try:
        return Recording.model_validate(data)
    except ValidationError as error:
        raise _recording_error(path, error, Recording, lines_by_path(lines)) from error


def _recording_error(
    path: Path, error: ValidationError, kind: type[BaseModel], lines: Mapping[str, int]
) -> UsageError:
    return UsageError(
        f"{path} is no recording: {'; '.join(map(str, violations_from(error, kind, '', lines)))}"
    )


def _load_folders(path: Path) -> Recording:
    runs = [_load_run(reply.parent) for reply in path.glob(f"*/{REPLY}")]
    if not runs:
        raise UsageError(f"{path} holds no run that ended; name a folder like .liza/runs, or a YAML file")
    return Recording(runs=tuple(sorted(runs, key=lambda run: (str(run.began), str(run.task)))))


def _load_run(folder: Path) -> RecordedRun:
    brief, reply = _load_record(folder / BRIEF, Brief), _load_record(folder / REPLY, Reply)
    return RecordedRun(
        role=brief.role,
        step=brief.step,
        task=brief.task,
        iteration=brief.iteration,
        seconds=reply.seconds,
        patches=_patches_in(folder),
        reply=reply.text,
        ending=reply.ending,
        why=reply.why,
        reset_in=_reset_in(reply),
        usage=reply.usage,
        began=reply.began,
    )


def _reset_in(reply: Reply) -> float | None:
    """Return the wait that a limit asked for; in a rehearsal the time itself would long be past."""
    if reply.reset is None:
        return None
    return max(0.0, (reply.reset - reply.began).total_seconds() - reply.seconds)


def _load_record(path: Path, kind: type[_M]) -> _M:
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if isinstance(error, ValidationError):
            raise _recording_error(path, error, kind, {}) from error
        raise UsageError(f"{path} is no recording: {error}") from error
