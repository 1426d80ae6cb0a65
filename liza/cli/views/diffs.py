"""What a task changed, by file: as committed for review, as merged, or as its branch has it so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.cli.views.status import whole_task
from liza.domain.printed_text import escape_unsafe
from liza.errors import NotThere
from liza.repo.repository import Repository, branch_of, patch_between

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from liza.board.protocol import Board
    from liza.repo.repository import FilePatch

_WORDS: Final = {"A": "added", "D": "removed", "R": "renamed", "C": "copied", "T": "of another type"}
_COLOURS: Final = {"+": "32", "-": "31", "@": "36"}  # as git's own: green, red, cyan


class TaskDiff(NamedTuple):
    """What *task* changed from one commit to another."""

    task: str
    base: str
    head: str
    files: tuple[FilePatch, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "files": [
                {**one._asdict(), "lines": [line._asdict() for line in one.lines]} for one in self.files
            ],
        }


class _Span(NamedTuple):
    base: str
    head: str


def task_diff(board: Board, name: str) -> TaskDiff:
    """Return what the task *name*, live or archived, changed; raise where nothing was committed for it."""
    live = board.read().tasks.get(name)
    fields = live.to_json() if live else whole_task(board.entries(), name)
    if fields is None:
        raise NotThere("task", name, "`liza status` lists the tasks")
    repository = Repository.around(board.home.parent)
    span = _span(repository, name, fields)
    if span is None:
        why = f"nothing was committed for it; `liza logs {name}` shows what its agent does"
        raise NotThere("diff of", name, why)
    return TaskDiff(name, span.base, span.head, patch_between(repository, span.base, span.head))


def _span(repository: Repository, name: str, fields: Mapping[str, Any]) -> _Span | None:
    if head := fields.get("merge_commit"):
        base = repository.commit_at(f"{head}^1")
    else:
        base = fields.get("base_commit")
        head = fields.get("review_commit") or repository.commit_at(branch_of(name))
    return _Span(base, head) if base and head and base != head else None


def file_heading(one: FilePatch) -> str:
    """Return in one line what became of a file."""
    source = f"{one.source} -> " if one.source else ""
    word = f" ({_WORDS[one.status]})" if one.status in _WORDS else ""
    size = " no text" if one.is_binary else f" +{one.count('+')} -{one.count('-')}"
    return f"{source}{one.path}{word}{size}"


def diff_lines(diff: TaskDiff, *, colour: bool) -> Iterator[str]:
    """Yield *diff* for people to read, safe to print: files may hold what acts on a terminal."""
    if not diff.files:
        yield f"{diff.task} changed nothing"
    for one in diff.files:
        yield _paint(escape_unsafe(file_heading(one)), "1", colour=colour)
        for line in one.lines:
            text = escape_unsafe(line.text)
            shown = text if line.sign == "@" else f"{line.sign}{text}"
            yield _paint(shown, _COLOURS.get(line.sign), colour=colour)


def stat_lines(diff: TaskDiff) -> Iterator[str]:
    """Yield a line a file, and the sum."""
    yield from map(file_heading, diff.files)
    added, removed = (sum(one.count(sign) for one in diff.files) for sign in "+-")
    yield f"{len(diff.files)} files, +{added} -{removed}, {diff.base[:12]}..{diff.head[:12]}"


def _paint(text: str, code: str | None, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[m" if colour and code else text
