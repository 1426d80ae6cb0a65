"""Every run on disk, in a form that people can read and `replay` can play back.

A run's folder has `brief.json` and `prompt.md` from the start, `stdout` and `stderr` as they come, and at the
end the change of the tree as `change.patch`, with the commits that it consists of in `change.json`, and
`reply.json` last: a folder without it is a run that did not end.

A recording is a folder of such folders, or one YAML file, which is what people write by hand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from liza.agents.protocol import Brief, Reply, Usage
from liza.domain.answers import Step, lines_by_path
from liza.domain.config import Count
from liza.domain.model import Role
from liza.domain.problems import violations_from
from liza.domain.record import Id, NonEmptyStr, Record, Time
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import LizaError, UsageError
from liza.repo.snapshot import Patch
from liza.system.files import overwrite
from liza.system.masking import environment_mask
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from liza.agents.protocol import Agent
    from liza.system.run_control import RunControl

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
