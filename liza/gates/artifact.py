"""The artifact gate: required artifacts are there (checkpoint, diff, tests), and the diff can be merged."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from posixpath import dirname
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from liza.domain.phase_handoff import PlanHandoff
from liza.domain.record import Record
from liza.domain.size_limit import WAIVER
from liza.domain.step_spec import StepSpec, step_problems
from liza.domain.verdicts import Feedback
from liza.gates.context import MOST_COMMITS, GateContext
from liza.gates.files import touches_code
from liza.gates.finding import (
    ONE_COMMIT,
    Finding,
    blocker,
    escape_to_line,
    escape_unprintable,
    finding_from,
    passed,
    revise,
)
from liza.gates.languages import has_tests, is_comment, is_test, language_of
from liza.repo.diff import LINK, REPOSITORY, DiffEntry
from liza.repo.objects import blob_contents, blob_sizes

LARGEST_FILE: Final = 1 << 20  # bytes; a file that people read stays far below
MOST_LINK_STEPS: Final = 1000  # steps from a link to where it leads; links in a circle never end

_OWNERS: Final = {".git": "git", ".liza": "Liza", ".worktrees": "Liza"}
# They turn the direction of text, so that a reader sees another name than the machine.
_DIRECTION_MARKS: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")

CHECKPOINT: Final = "pre_execution_checkpoint"
CLAIM: Final = "claim"
_STEP_KEYS: Final = tuple(name for name, field in StepSpec.model_fields.items() if field.is_required())

Required = Literal["required"]


class ArtifactOptions(Record):
    checkpoint: Required | None = None
    diff: Required | None = None
    tests: Required | None = None
    form: Literal["step_spec", "handoff"] | None = Field(default=None, alias="schema")
    max_bytes: Annotated[int, Field(ge=1)] = LARGEST_FILE

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if not (self.checkpoint or self.diff or self.tests or self.form):
            raise ValueError("say what is required: checkpoint, diff, tests or schema")
        return self


def judge(options: ArtifactOptions, case: GateContext) -> Finding:
    """Look for all that *options* ask for; the first that is missing is the verdict."""
    found = [
        *([judge_checkpoint(case)] if options.checkpoint else []),
        *([judge_diff(case, options.max_bytes)] if options.diff else []),
        *([judge_tests(case)] if options.tests else []),
        *([_JUDGES[options.form](case)] if options.form else []),
    ]
    return next((one for one in found if one.outcome != "pass"), found[-1])


def judge_step(case: GateContext) -> Finding:
    """Look for the step that is to be done next: all of it is said, and it is small."""
    step = case.said.step
    if step is None:
        return revise("there is no step", [blocker(f"add `step` with {', '.join(_STEP_KEYS)}")])
    problems = [blocker(problem) for problem in step_problems(step, is_waived=case.task.waives(WAIVER))]
    return finding_from("the step is whole and small", "the step cannot be given to anybody", problems)


def judge_handoff(case: GateContext) -> Finding:
    """Look for what the next phase goes by: without it, whoever works there would have to guess."""
    if case.said.handoff is None:
        needs = f"add `handoff` with {', '.join(PlanHandoff.model_fields)}; `summary` has to be there"
        return revise("nothing is handed on to the next phase", [blocker(needs)])
    return passed("what the next phase goes by was handed on")


_JUDGES: Final = {"step_spec": judge_step, "handoff": judge_handoff}


def judge_checkpoint(case: GateContext) -> Finding:
    """Look for a checkpoint that was written in this attempt, before the work was handed in."""
    if case.checkpoint is None:
        return revise("there is no checkpoint", [blocker("write the checkpoint before you implement")])
    events = [entry.event for entry in case.task.history]
    # The board shows only the latest events: an order that it does not show was checked by the lifecycle.
    if CLAIM in events and CHECKPOINT not in events[len(events) - events[::-1].index(CLAIM) :]:
        return revise(
            "the checkpoint was not written in this attempt",
            [blocker("write a checkpoint for what you are about to do, before you do it")],
        )
    return passed("the work was announced first (its checkpoint)")


def judge_diff(case: GateContext, largest: int = LARGEST_FILE) -> Finding:
    """Look at the diff: something must be in it, and only what can be merged, checked out and reviewed."""
    if not case.diff:
        return revise("the diff is empty", [blocker("nothing differs from the base; commit the work")])
    there = [entry for entry in case.diff if entry.is_there]
    feedback = [
        *_unreadable_names(there),
        *_reserved_paths(there),
        *_escaping_links(case, there),
        *_oversized(case, there, largest),
        *_name_collisions(case, there),
        *_problems_in_history(case, largest),
    ]
    return finding_from("the diff can be merged", "the diff has what must not be merged", feedback)


def _unreadable_names(entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    for entry in entries:
        odd = any(unicodedata.category(sign) == "Cc" or sign in _DIRECTION_MARKS for sign in entry.path)
        if odd or entry.path != entry.path.encode("utf-8", "replace").decode():
            shown = escape_to_line(entry.path)
            yield blocker(f"the name {shown} has signs that cannot be read; rename the file", shown)


def _reserved_paths(entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    for entry in entries:
        parts = [part.casefold().rstrip(" .") for part in entry.path.split("/")]
        owner = _OWNERS.get(parts[0]) or ("git" if ".git" in parts else None)
        if owner:
            yield blocker(f"this belongs to {owner} and cannot be committed; remove it", entry.path)
        if entry.mode == REPOSITORY:
            message = "a repository inside the repository cannot be merged; add its files instead"
            yield blocker(message, entry.path)


def _escaping_links(case: GateContext, entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    if all(entry.mode != LINK for entry in entries):
        return
    all_links = {path: item.blob for path, item in case.head_files.items() if item.mode == LINK}
    texts = blob_contents(case.repository, all_links.values())
    targets = {
        path: texts.get(blob, b"/").decode("utf-8", "surrogateescape") for path, blob in all_links.items()
    }
    for path, target in sorted(targets.items()):
        if link_target(path, targets) is None:
            yield blocker(
                f"the link leads out of the repository (to {escape_unprintable(target)}); remove it", path
            )


def link_target(path: str, links: Mapping[str, str]) -> str | None:
    """Return where the link *path* leads, as the kernel would go; None where that is outside."""
    place, todo = dirname(path), _path_parts(links[path])
    for _ in range(MOST_LINK_STEPS):
        if not todo:
            return place or "."
        part = todo.pop()
        here = f"{place}/{part}" if place else part
        if part == "/" or (part == ".." and not place) or here == ".git":
            return None
        if part == "..":
            place = dirname(place)
        elif here in links:
            todo += _path_parts(links[here])
        else:
            place = here
    return None


def _path_parts(target: str) -> list[str]:
    """Return the parts of *target*, the first last; a slash stands for the root of the system."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    return [*reversed(parts), *(["/"] if target.startswith("/") else [])]


def _oversized(case: GateContext, entries: list[DiffEntry], largest: int) -> Iterator[Feedback]:
    known = blob_sizes(case.repository, [entry.blob for entry in entries if entry.mode != REPOSITORY])
    for entry in entries:
        if entry.is_binary and not case.bounds.includes(entry.path):
            message = (
                "this is not text, and the scope does not name it; remove it or have it put into the scope"
            )
            yield blocker(message, entry.path)
        if known.get(entry.blob, 0) > largest and not case.bounds.names(entry.path):
            message = f"this has more than {largest} bytes, and the scope does not name it; keep it out"
            yield blocker(message, entry.path)


def _problems_in_history(case: GateContext, largest: int) -> Iterator[Feedback]:
    """Yield problems of versions that only earlier commits of the task have: they are merged with the
    history.
    """
    if len(case.commits) > MOST_COMMITS:
        message = (
            f"these are {len(case.commits)} commits, and each would have to be looked at; make one of them"
        )
        yield blocker(message, mend=ONE_COMMIT)
    where = {(past.entry.path, past.entry.blob): past.where for past in case.history}
    entries = [past.entry for past in case.history]
    for found in _reserved_paths(entries):
        yield blocker(f"{found.message}, also in the history", found.file, mend=ONE_COMMIT)
    known = blob_sizes(case.repository, [entry.blob for entry in entries if entry.mode != REPOSITORY])
    for entry in entries:
        place = where[(entry.path, entry.blob)]
        if known.get(entry.blob, 0) > largest and not case.bounds.names(entry.path):
            yield blocker(f"more than {largest} bytes were added here {place}", entry.path, mend=ONE_COMMIT)
        elif entry.is_binary and not case.bounds.includes(entry.path):
            yield blocker(f"what is not text was added here {place}", entry.path, mend=ONE_COMMIT)


def _name_collisions(case: GateContext, entries: list[DiffEntry]) -> Iterator[Feedback]:
    new = [entry.path for entry in entries if entry.is_new]
    if not new:
        return
    by_name: dict[str, list[str]] = {}
    for path in case.head_files:
        by_name.setdefault(_case_folded(path), []).append(path)
    for path in new:
        others = [other for other in by_name[_case_folded(path)] if other != path]
        if others:
            other = escape_unprintable(others[0])
            message = f"on some systems this is the same file as {other}; choose another name"
            yield blocker(message, path)


def _case_folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def judge_tests(case: GateContext) -> Finding:
    """Look for tests in the diff, wherever it changes code."""
    code = [entry for entry in case.diff if touches_code(entry)]
    if not code:
        return passed("no code is touched, so no tests are needed")
    changed = changed_tests(case)
    if changed:
        return passed("tests are added or changed")
    feedback = [
        blocker("this is code, and no test comes with it; add one that fails without it", entry.path)
        for entry in code
        if entry.is_there and not is_test(entry.path)
    ]
    return finding_from(
        "", "code is changed without tests", feedback or [blocker("add a test for what was changed")]
    )


def changed_tests(case: GateContext) -> list[DiffEntry]:
    """Return the files with tests to which the diff adds more than comments."""
    return [entry for entry in case.diff if entry.is_there and _adds_tests(case, entry)]


def _adds_tests(case: GateContext, entry: DiffEntry) -> bool:
    language = language_of(entry.path)
    lines = [line.text for line in entry.added if not is_comment(entry.path, line.text)]
    if language is None or not lines:
        return False
    if is_test(entry.path):
        return has_tests(entry.path, case.texts.get(entry.blob, ""))
    added = "\n".join(lines)
    return (
        language.inline
        and bool(language.mark.search(added) or language.asserts.search(added))
        and has_tests(entry.path, case.texts.get(entry.blob, ""))
    )
