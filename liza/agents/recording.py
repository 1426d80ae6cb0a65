"""Every run on disk, in a form that people can read and `replay` can play back.

A run's folder has `brief.json` and `prompt.md` from the start, `stdout` and `stderr` as they come, and at the
end the change of the tree as `change.patch`, with the commits that it consists of in `change.json`, and
`reply.json` last: a folder without it is a run that did not end.

A recording is a folder of such folders, or one YAML file, which is what people write by hand.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from liza.agents.protocol import Brief, Reply, Usage
from liza.domain.answers import Step, located
from liza.domain.config import Count
from liza.domain.model import Role
from liza.domain.problems import explained
from liza.domain.record import Id, Line, Record, Time
from liza.domain.yaml_parse import BadYaml, parse
from liza.errors import LizaError, UsageError
from liza.repo.snapshot import Patch
from liza.system.masking import mask
from liza.system.run_control import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from liza.agents.protocol import Agent
    from liza.system.run_control import Stop

log = logging.getLogger(__name__)

BRIEF: Final = "brief.json"
PROMPT: Final = "prompt.md"
STDOUT: Final = "stdout"
STDERR: Final = "stderr"
PATCH: Final = "change.patch"
COMMITS: Final = "change.json"
REPLY: Final = "reply.json"

_M = TypeVar("_M", bound=BaseModel)


class Tree(Protocol):
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


def file_brief(brief: Brief) -> Path:
    """Write what is known before a run; return the path of the brief."""
    brief.folder.mkdir(parents=True, exist_ok=True)
    known = brief.but(prompt=mask().text(brief.prompt), facts=mask().values(dict(brief.facts)))
    (brief.folder / PROMPT).write_text(known.prompt, encoding="utf-8", errors="replace")
    return _put(brief.folder / BRIEF, known.model_dump_json(indent=2))


def _put(path: Path, text: str) -> Path:
    """Write a file that is whole or not there."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(f"{text}\n", encoding="utf-8", errors="replace")
    return draft.replace(path)


class Recorder:
    """An agent that writes down what another agent does."""

    def __init__(
        self, agent: Agent, tree: Tree, price: Callable[[Reply, Brief, Stop], Reply] | None = None
    ) -> None:
        self._agent = agent
        self._tree = tree
        self._price = price

    def run(self, brief: Brief, stop: Stop) -> Reply:
        file_brief(brief)
        mark = self._tree.mark(brief.cwd)
        # Here, since whatever becomes of an answer (the board, a log, a commit) is made of this.
        reply = self._agent.run(brief, stop)
        if self._price:
            reply = self._price(reply, brief, stop)
        reply = reply.but(text=mask().text(reply.text), why=mask().text(reply.why))
        try:
            _file_patches(brief.folder, self._tree.patches(brief.cwd, mark))
        except (
            LizaError
        ) as error:  # the agent may have destroyed its worktree; what it said is still worth having
            log.warning("%s: what it changed is not recorded: %s", brief.run, error)
        _put(brief.folder / REPLY, reply.model_dump_json(indent=2))
        return reply


class _Part(Record):
    """Which bytes of the patch file belong to which commit."""

    message: str | None = None
    size: Count


_PARTS: Final = TypeAdapter(tuple[_Part, ...])


def _file_patches(folder: Path, patches: Sequence[Patch]) -> None:
    diffs = [_masked_diff(patch.diff) for patch in patches]
    (folder / PATCH).write_bytes(b"".join(diffs))
    parts = tuple(
        _Part(message=mask().text(patch.message) if patch.message else patch.message, size=len(diff))
        for patch, diff in zip(patches, diffs, strict=True)
    )
    _put(folder / COMMITS, _PARTS.dump_json(parts, indent=2).decode())


def _masked_diff(diff: bytes) -> bytes:
    """Return *diff* without secrets; what looks like one in the code for a binary file is none."""
    return diff if b"\nGIT binary patch\n" in diff and not mask().has_value(diff) else mask().whole(diff)


def _patches_in(folder: Path) -> tuple[Patch, ...]:
    if not (folder / COMMITS).exists():
        return ()
    diffs, patches, at = (folder / PATCH).read_bytes(), [], 0
    for part in _PARTS.validate_json((folder / COMMITS).read_bytes()):
        patches.append(Patch(message=part.message, diff=diffs[at : at + part.size]))
        at += part.size
    return tuple(patches)


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or ".." in parts or parts[0] in {"/", ".git"}:
        message = f"{path!r} is not a path inside the worktree"
        raise ValueError(message)
    return path


Inside = Annotated[str, AfterValidator(_inside)]


class Recorded(Record):
    """One run as it can be played back: when it is called for, how long it took, what it did and said."""

    role: Role
    step: Step
    task: Id | None = None
    iteration: Count | None = None  # None stands for any
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    files: Mapping[Inside, str] = Field(default_factory=dict)  # written whole
    delete: tuple[Inside, ...] = ()
    commit: Line | None = None  # the message under which files and deletions are committed
    patches: tuple[Patch, ...] = ()
    reply: str
    ending: Ending = Ending.DONE
    why: str = ""
    reset_in: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None  # seconds until a limit ends
    usage: Usage = Usage()
    began: Time | None = None


class Recording(Record):
    about: str = ""
    runs: tuple[Recorded, ...] = Field(min_length=1)


def latest_before(brief: Brief) -> Brief | None:
    """Return the latest run of the same worker that is recorded beside *brief*, ended or not."""
    worker = brief.run.partition(".")[0]
    others = (path for path in brief.folder.parent.glob(f"{worker}.*/{BRIEF}") if path.parent != brief.folder)
    last = max(others, key=lambda path: _moment(path.parent.name), default=None)
    try:
        return _loaded(last, Brief) if last else None
    except UsageError:  # half written by a worker that died
        return None


def _moment(run: str) -> tuple[str, int]:
    """Return when a run began, by its id: the second, and which of that second it was."""
    _, second, number, *_ = (*run.split("."), "", "")
    count = number.partition("-")[0]
    return second, int(count) if count.isdecimal() else 0


def reply_of(brief: Brief) -> Reply | None:
    """Return what is recorded of the end of *brief*; None where it did not end."""
    try:
        return _loaded(brief.folder / REPLY, Reply)
    except UsageError:
        return None


def said_so_far(brief: Brief) -> str:
    """Return what the program of *brief* printed, whether or not it ended."""
    try:
        return (brief.folder / STDOUT).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def ended_beside(brief: Brief) -> Iterator[Brief]:
    """Yield the briefs of the runs recorded beside this one that ended."""
    for reply in brief.folder.parent.glob(f"*/{REPLY}"):
        yield _loaded(reply.with_name(BRIEF), Brief)


def loaded(path: Path) -> Recording:
    """Return the recording at *path*: a folder of runs, or a YAML file."""
    return _from_folders(path) if path.is_dir() else _from_file(path)


def _from_file(path: Path) -> Recording:
    try:
        data, lines = parse(path.read_text(encoding="utf-8"))
    except (OSError, BadYaml, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no recording: {error}; mend it") from error
    try:
        return Recording.model_validate(data)
    except ValidationError as error:
        raise _bad(path, error, Recording, located(lines)) from error


def _bad(path: Path, error: ValidationError, kind: type[BaseModel], lines: Mapping[str, int]) -> UsageError:
    return UsageError(f"{path} is no recording: {'; '.join(map(str, explained(error, kind, '', lines)))}")


def _from_folders(path: Path) -> Recording:
    runs = [_recorded(reply.parent) for reply in path.glob(f"*/{REPLY}")]
    if not runs:
        raise UsageError(f"{path} holds no run that ended; name a folder like .liza/runs, or a YAML file")
    return Recording(runs=tuple(sorted(runs, key=lambda run: (str(run.began), str(run.task)))))


def _recorded(folder: Path) -> Recorded:
    brief, reply = _loaded(folder / BRIEF, Brief), _loaded(folder / REPLY, Reply)
    return Recorded(
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


def _loaded(path: Path, kind: type[_M]) -> _M:
    try:
        return kind.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        if isinstance(error, ValidationError):
            raise _bad(path, error, kind, {}) from error
        raise UsageError(f"{path} is no recording: {error}") from error
