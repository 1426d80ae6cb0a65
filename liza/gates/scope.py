"""The scope gate: what may be touched, what was announced, and how much at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from liza.domain.record import Record
from liza.domain.size_limit import WAIVER, ChangeSize, SizeLimit, oversize
from liza.domain.step_spec import step_risk
from liza.domain.verdicts import Feedback
from liza.gates.context import GateContext
from liza.gates.files import diff_facts, is_generated
from liza.gates.finding import ONE_COMMIT, Finding, blocker, concern, finding_from
from liza.gates.known_runners import is_runner_file
from liza.gates.languages import folder_for_tests, is_for_tests, is_named_as_test
from liza.gates.patterns import matches, paths_in_entry

TOLERANCE: Final = 0.1  # by which readers' text alone may be longer than max_loc; never files, never code

Positive = Annotated[int, Field(ge=1)]


class ScopeOptions(Record):
    announced: Literal["required", "recorded"] = "required"
    max_loc: Positive | None = None
    max_files: Positive | None = None
    limit: Literal["any", "all"] = "any"
    tolerance: Annotated[float, Field(ge=0, le=1)] = TOLERANCE


def judge(options: ScopeOptions, case: GateContext) -> Finding:
    """Compare the touched paths with the task's scope and its checkpoint, and their size with the limits."""
    strayed = [
        *_outside_scope(case),
        *_outside_in_history(case),
        *_unannounced_files(options, case),
        *_outside_step(case),
    ]
    size = list(_oversize(options, case))
    prose = [
        concern(f"the scope says {entry!r}, which is no path; judge it yourself")
        for entry in case.bounds.prose
    ]
    bad = (
        "files outside the scope are touched" if any(map(_is_blocker, strayed)) else "the change is too large"
    )
    return finding_from("the change is inside its scope", bad, [*strayed, *size, *prose])


def _is_blocker(feedback: Feedback) -> bool:
    return feedback.severity == "blocker"


def _touched_paths(case: GateContext) -> list[str]:
    return sorted({path for entry in case.diff for path in entry.paths})


def is_companion(case: GateContext, path: str) -> bool:
    """Say whether *path* is a test that comes with the work: every code task brings some.

    Where the scope names places for tests, those are the places. What steers the runner is no companion, nor
    is what only lies in a directory that is called like one for tests: the base has to have tests there.
    """
    if not is_for_tests(path) or is_runner_file(path):
        return False
    if not is_named_as_test(path) and folder_for_tests(path) not in case.folders_for_tests:
        return False
    return not any(is_for_tests(pattern) or is_for_tests(f"{pattern}/x.py") for pattern in case.bounds.inside)


def _outside_scope(case: GateContext) -> Iterator[Feedback]:
    limits = case.bounds
    for path in _touched_paths(case):
        if limits.excludes(path):
            yield blocker("the scope says that this is OUT; undo the change", path)
        elif limits.inside and not limits.includes(path) and not is_companion(case, path):
            message = (
                "this is not among what the scope says is IN; undo the change, or say why you are blocked"
            )
            yield blocker(message, path)


def _outside_in_history(case: GateContext) -> Iterator[Feedback]:
    """Look at paths that only commits on the way touched."""
    limits, now = case.bounds, set(_touched_paths(case))
    for past in case.history:
        path = past.entry.path
        is_in = not limits.inside or limits.includes(path) or is_companion(case, path)
        if path not in now and (limits.excludes(path) or not is_in):
            yield blocker(f"this is outside of the scope, and was added {past.where}", path, mend=ONE_COMMIT)


def _with_relative_paths(case: GateContext, entry: str) -> str:
    """Return *entry* with the paths in it as the tree has them: an agent may name them as it sees them."""
    repository = case.repository
    for top in (repository.area / case.task.id, repository.root, repository.root.resolve()):
        entry = entry.replace(f"{top}/", "")
    return entry


def _unannounced_files(options: ScopeOptions, case: GateContext) -> Iterator[Feedback]:
    if case.checkpoint is None:
        return
    announced = [
        path
        for entry in case.checkpoint.files_to_modify
        for path in paths_in_entry(_with_relative_paths(case, entry))
    ]
    for path in _touched_paths(case):
        if _is_allowed_unannounced(case, path, announced) or any(
            matches(pattern, path) for pattern in announced
        ):
            continue
        message = (
            "the checkpoint does not announce this among files_to_modify; announce it, or leave it alone"
        )
        # Who announced nothing is told, and left to the reviewer; who announced something is held to it.
        needed = options.announced == "required" and bool(announced) and not is_companion(case, path)
        yield (blocker if needed else concern)(message, path)


def _is_allowed_unannounced(case: GateContext, path: str, announced: list[str]) -> bool:
    """Say whether the scope itself allows *path*, or has been held against it already.

    What is new inside of it may come up during the work. That something which is there already has to
    change is known before, unless it is a test: so a directory of the scope is no announcement.
    """
    bounds = case.bounds
    if not bounds.inside:
        return False
    is_old = path in case.base_files and not is_for_tests(path)
    return not announced or bounds.names(path) or not bounds.includes(path) or not is_old


def _outside_step(case: GateContext) -> Iterator[Feedback]:
    """Look at what the last step touched and was not given out to touch."""
    if case.step is None:
        return
    named = [path for entry in case.step.files for path in paths_in_entry(_with_relative_paths(case, entry))]
    for path in sorted({path for entry in case.step_diff for path in entry.paths}):
        if not any(matches(pattern, path) for pattern in named) and not is_companion(case, path):
            yield blocker("the step does not name this among its files; undo the change", path)


def _oversize(options: ScopeOptions, case: GateContext) -> Iterator[Feedback]:
    loc = sum(entry.loc for entry in case.step_diff if not is_generated(entry.path))
    risk = step_risk(case.step) if case.step else None
    size = ChangeSize(loc, len(case.step_diff), "docs_only" in diff_facts(case.step_diff), risk)
    limit = SizeLimit(options.max_loc, options.max_files, options.limit, options.tolerance)
    is_waived = case.task.waives(WAIVER)
    yield from (
        blocker(f"{message}; split the work") for message in oversize(size, limit, is_waived=is_waived)
    )
