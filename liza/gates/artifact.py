"""Gates that read what was handed in: what has to be there is, what is cited exists, no more is touched."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from posixpath import dirname
from typing import Annotated, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from liza.domain.answers import WAIVER, ChangeSize, SizeLimit, StepSpec, oversize, step_problems, step_risk
from liza.domain.model import Feedback
from liza.domain.phase_handoff import PlanHandoff
from liza.domain.record import Record
from liza.gates.context import (
    MOST_COMMITS,
    ONE_COMMIT,
    Finding,
    GateContext,
    blocker,
    concern,
    escape_to_line,
    escape_unprintable,
    finding_from,
    is_runner_file,
    let_pass,
    revise,
)
from liza.gates.files import (
    diff_facts,
    folder_for_tests,
    has_tests,
    is_comment,
    is_for_tests,
    is_generated,
    is_named_as_test,
    is_test,
    language_of,
    matches,
    paths_in_entry,
    suffix_of,
    touches_code,
    word_set,
)
from liza.repo.repository import LINK, REPOSITORY, DiffEntry, TreeItem, blob_contents, blob_sizes

LARGEST_FILE: Final = 1 << 20  # bytes; a file that people read stays far below
MOST_LINK_STEPS: Final = 1000  # steps from a link to where it leads; links in a circle never end

_OWNERS: Final = {".git": "git", ".liza": "Liza", ".worktrees": "Liza"}
# Controls, separators of lines, and what is not seen or turns the direction of text: a reader sees another
# name than the machine. Names in some scripts need what joins and parts their letters.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})
_JOINERS: Final = frozenset("\u200c\u200d")

# What a runtime prefers to the source of the same name, whatever that says.
_COMPILED: Final = re.compile(r"(?:^|/)__pycache__/|\.(?:py[cod]|so|dll|dylib|node|class)$", re.IGNORECASE)

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


def judge_artifact(options: ArtifactOptions, context: GateContext) -> Finding:
    """Look for all that *options* ask for; the first that is missing is the verdict."""
    found = [
        *([judge_checkpoint(context)] if options.checkpoint else []),
        *([judge_diff(context, options.max_bytes)] if options.diff else []),
        *([judge_tests(context)] if options.tests else []),
        *([_JUDGES[options.form](context)] if options.form else []),
    ]
    return next((one for one in found if one.outcome != "pass"), found[-1])


def judge_step(context: GateContext) -> Finding:
    """Look for the step that is to be done next: all of it is said, and it is small."""
    step = context.said.step
    if step is None:
        return revise("there is no step", [blocker(f"add `step` with {', '.join(_STEP_KEYS)}")])
    problems = [blocker(problem) for problem in step_problems(step, is_waived=context.task.waives(WAIVER))]
    return finding_from("the step is whole and small", "the step cannot be given to anybody", problems)


def judge_handoff(context: GateContext) -> Finding:
    """Require the hand-off to the next phase: without it, its worker would have to guess."""
    if context.said.handoff is None:
        needs = f"add `handoff` with {', '.join(PlanHandoff.model_fields)}; `summary` has to be there"
        return revise("nothing is handed on to the next phase", [blocker(needs)])
    return let_pass("what the next phase goes by was handed on")


_JUDGES: Final = {"step_spec": judge_step, "handoff": judge_handoff}


def judge_checkpoint(context: GateContext) -> Finding:
    """Look for a checkpoint that was written in this attempt, before the work was handed in."""
    if context.checkpoint is None:
        return revise("there is no checkpoint", [blocker("write the checkpoint before you implement")])
    events = [entry.event for entry in context.task.history]
    # The board shows only the latest events: an order that it does not show was checked by the lifecycle.
    if CLAIM in events and CHECKPOINT not in events[len(events) - events[::-1].index(CLAIM) :]:
        return revise(
            "the checkpoint was not written in this attempt",
            [blocker("write a checkpoint for what you are about to do, before you do it")],
        )
    return let_pass("the work was announced first (its checkpoint)")


def judge_diff(context: GateContext, largest: int = LARGEST_FILE) -> Finding:
    """Look at the diff: something must be in it, and only what can be merged, checked out and reviewed."""
    if not context.diff:
        return revise("the diff is empty", [blocker("nothing differs from the base; commit the work")])
    there = [entry for entry in context.diff if entry.is_there]
    feedback = [
        *_unreadable_names(there),
        *_reserved_paths(there),
        *_compiled_code(context, there),
        *_escaping_links(context, there),
        *_size_flaws(context, there, largest),
        *_name_collisions(context, there),
        *_problems_in_history(context, largest),
    ]
    return finding_from("the diff can be merged", "the diff has what must not be merged", feedback)


def _unreadable_names(entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    for entry in entries:
        odd = any(unicodedata.category(sign) in _UNSEEN and sign not in _JOINERS for sign in entry.path)
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


def _compiled_code(context: GateContext, entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    """Yield files that are run instead of the source beside them, and that nobody can review."""
    for entry in entries:
        if _COMPILED.search(entry.path) and not context.bounds.names(entry.path):
            message = "this is compiled code, which is run instead of the source that is reviewed; remove it"
            yield blocker(message, entry.path)


def _escaping_links(context: GateContext, entries: Iterable[DiffEntry]) -> Iterator[Feedback]:
    if all(entry.mode != LINK for entry in entries):
        return
    all_links = {path: item.blob for path, item in context.head_files.items() if item.mode == LINK}
    texts = blob_contents(context.repository, all_links.values())
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


def _size_flaws(context: GateContext, entries: list[DiffEntry], largest: int) -> Iterator[Feedback]:
    known = blob_sizes(context.repository, [entry.blob for entry in entries if entry.mode != REPOSITORY])
    for entry in entries:
        if entry.is_binary and not context.bounds.includes(entry.path):
            message = (
                "this is not text, and the scope does not name it; remove it or have it put into the scope"
            )
            yield blocker(message, entry.path)
        if known.get(entry.blob, 0) > largest and not context.bounds.names(entry.path):
            message = f"this has more than {largest} bytes, and the scope does not name it; keep it out"
            yield blocker(message, entry.path)


def _problems_in_history(context: GateContext, largest: int) -> Iterator[Feedback]:
    """Yield problems of versions that only earlier commits of the task have: they are merged with the
    history.
    """
    if len(context.commits) > MOST_COMMITS:
        message = (
            f"these are {len(context.commits)} commits, and each would have to be looked at; make one of them"
        )
        yield blocker(message, mend=ONE_COMMIT)
    where = {(past.entry.path, past.entry.blob): past.where for past in context.history}
    entries = [past.entry for past in context.history]
    for found in _reserved_paths(entries):
        yield blocker(f"{found.message}, also in the history", found.file, mend=ONE_COMMIT)
    known = blob_sizes(context.repository, [entry.blob for entry in entries if entry.mode != REPOSITORY])
    for entry in entries:
        place = where[(entry.path, entry.blob)]
        if known.get(entry.blob, 0) > largest and not context.bounds.names(entry.path):
            yield blocker(f"more than {largest} bytes were added here {place}", entry.path, mend=ONE_COMMIT)
        elif entry.is_binary and not context.bounds.includes(entry.path):
            yield blocker(f"what is not text was added here {place}", entry.path, mend=ONE_COMMIT)


def _name_collisions(context: GateContext, entries: list[DiffEntry]) -> Iterator[Feedback]:
    new = {entry.path: _case_folded(entry.path) for entry in entries if entry.is_new}
    if not new:
        return
    by_name: dict[str, list[str]] = {folded: [] for folded in new.values()}
    for path in context.head_files:
        if (folded := _case_folded(path)) in by_name:
            by_name[folded].append(path)
    for path, folded in new.items():
        others = [other for other in by_name[folded] if other != path]
        if others:
            other = escape_unprintable(others[0])
            message = f"on some systems this is the same file as {other}; choose another name"
            yield blocker(message, path)


def _case_folded(path: str) -> str:
    return path.lower() if path.isascii() else unicodedata.normalize("NFC", path).casefold()


def judge_tests(context: GateContext) -> Finding:
    """Look for tests in the diff, wherever it changes code."""
    code = [entry for entry in context.diff if touches_code(entry)]
    if not code:
        return let_pass("no code is touched, so no tests are needed")
    changed = changed_tests(context)
    if changed:
        return let_pass("tests are added or changed")
    feedback = [
        blocker("this is code, and no test comes with it; add one that fails without it", entry.path)
        for entry in code
        if entry.is_there and not is_test(entry.path)
    ]
    return finding_from(
        "", "code is changed without tests", feedback or [blocker("add a test for what was changed")]
    )


def changed_tests(context: GateContext) -> list[DiffEntry]:
    """Return the files with tests to which the diff adds more than comments."""
    return [entry for entry in context.diff if entry.is_there and _adds_tests(context, entry)]


def _adds_tests(context: GateContext, entry: DiffEntry) -> bool:
    language = language_of(entry.path)
    lines = [line.text for line in entry.added if not is_comment(entry.path, line.text)]
    if language is None or not lines:
        return False
    if is_test(entry.path):
        return has_tests(entry.path, context.texts.get(entry.blob, ""))
    added = "\n".join(lines)
    return (
        language.inline
        and bool(language.mark.search(added) or language.asserts.search(added))
        and has_tests(entry.path, context.texts.get(entry.blob, ""))
    )


# The refs gate: what is cited exists, so that nobody builds on a file that an agent imagined.

# Not preceded by what makes it a part of a URL, of an absolute path or of a longer word.
_CITED: Final = re.compile(
    r"(?<![\w/.:@~-])((?:[\w.@+-]+/)*[\w.@+-]*\w):(\d{1,7})(?:[-\u2013](\d{1,7}))?(?!\w|\.\d)"
)
_DOC: Final = re.compile(r"(?<![\w/.:@~-])((?:[\w.@+-]+/)+[\w.@+-]+\.(?:md|rst|txt|adoc))\b")
_KNOWN: Final = word_set(
    "py js jsx ts tsx mjs cjs go rs java kt rb sh sql c h cc cpp hpp cs php swift scala md rst txt toml yaml "
    "yml json cfg ini html css vue svelte"
)


class RefsOptions(Record):
    max_docs: Annotated[int, Field(ge=0)] | None = None
    docs: str = "docs"
    on_miss: Literal["revise", "record"] = "revise"


class Citation(NamedTuple):
    path: str
    line: int


def citations_in(text: str) -> list[Citation]:
    """Return every `path:line` in *text*, with the last line where a range is meant."""
    found = []
    for match in _CITED.finditer(text):
        path, first, last = match.groups()
        if suffix_of(path) in _KNOWN:
            found.append(Citation(path.removeprefix("./"), max(int(first), int(last or 0))))
    return found


def judge_refs(options: RefsOptions, context: GateContext) -> Finding:
    """Look up what the checkpoint, the answers and the reviewer's feedback cite."""
    said = _citing_texts(context)
    citations = {one for text in said for one in citations_in(text)}
    citations |= {Citation(one.file, one.line) for one in context.said.feedback if one.file and one.line}
    note = blocker if options.on_miss == "revise" else concern
    missed = [
        note(message, one.path, one.line) for one, message in _broken_citations(context, sorted(citations))
    ]
    docs = sorted({path for text in said for path in _DOC.findall(text) if matches(options.docs, path)})
    if options.max_docs is not None and len(docs) > options.max_docs:
        missed.append(
            note(f"more documents are cited than the {options.max_docs} that may be: {', '.join(docs)}")
        )
    return finding_from("what is cited exists", "something is cited that is not there", missed)


def _citing_texts(context: GateContext) -> list[str]:
    point = context.checkpoint
    planned = [point.intent, *point.assumptions, point.risks] if point else []
    reviewed = [text for one in context.said.feedback for text in (one.message, one.suggestion or "")]
    return [*planned, *context.said.answers, *reviewed]


def _broken_citations(context: GateContext, citations: list[Citation]) -> Iterator[tuple[Citation, str]]:
    if not citations:
        return
    blobs = {one: _matching_items(context, one.path) for one in citations}
    texts = blob_contents(context.repository, {item.blob for found in blobs.values() for item in found})
    for one, found in blobs.items():
        longest = max((_line_count(texts.get(item.blob, b"")) for item in found), default=0)
        if not found:
            yield one, "this file is cited, and neither the base nor the head has it"
        elif one.line > max(longest, 1):
            yield one, f"line {one.line} is cited, and the file ends at line {longest}"


def _matching_items(context: GateContext, path: str) -> list[TreeItem]:
    """Return the file in the base and in the head; a name without its directory will do where it is there."""
    found = []
    for files in (context.base_files, context.head_files):
        exact = files.get(path)
        found += [exact] if exact else [item for name, item in files.items() if name.endswith(f"/{path}")]
    return found


def _line_count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


# The scope gate: what may be touched, what was announced, and how much at once.

TOLERANCE: Final = 0.1  # by which readers' text alone may be longer than max_loc; never files, never code

Positive = Annotated[int, Field(ge=1)]


class ScopeOptions(Record):
    announced: Literal["required", "recorded"] = "required"
    max_loc: Positive | None = None
    max_files: Positive | None = None
    limit: Literal["any", "all"] = "any"
    tolerance: Annotated[float, Field(ge=0, le=1)] = TOLERANCE


def judge_scope(options: ScopeOptions, context: GateContext) -> Finding:
    """Compare the touched paths with the task's scope and its checkpoint, and their size with the limits."""
    strayed = [
        *_outside_scope(context),
        *_outside_in_history(context),
        *_unannounced_files(options, context),
        *_outside_step(context),
    ]
    size = list(_oversize(options, context))
    prose = [
        concern(f"the scope says {entry!r}, which is no path; judge it yourself")
        for entry in context.bounds.prose
    ]
    bad = (
        "files outside the scope are touched" if any(map(_is_blocker, strayed)) else "the change is too large"
    )
    return finding_from("the change is inside its scope", bad, [*strayed, *size, *prose])


def _is_blocker(feedback: Feedback) -> bool:
    return feedback.severity == "blocker"


def _touched_paths(context: GateContext) -> list[str]:
    return sorted({path for entry in context.diff for path in entry.paths})


def is_companion(context: GateContext, path: str) -> bool:
    """Return whether *path* is a test that comes with the work: every code task brings some.

    Where the scope names places for tests, those are the places. What steers the runner is no companion, nor
    is what only lies in a directory that is called like one for tests: the base has to have tests there.
    """
    if not is_for_tests(path) or is_runner_file(path):
        return False
    if not is_named_as_test(path) and folder_for_tests(path) not in context.folders_for_tests:
        return False
    return not any(
        is_for_tests(pattern) or is_for_tests(f"{pattern}/x.py") for pattern in context.bounds.inside
    )


def _outside_scope(context: GateContext) -> Iterator[Feedback]:
    limits = context.bounds
    for path in _touched_paths(context):
        if limits.excludes(path):
            yield blocker("the scope says that this is OUT; undo the change", path)
        elif limits.inside and not limits.includes(path) and not is_companion(context, path):
            message = (
                "this is not among what the scope says is IN; undo the change, or say why you are blocked"
            )
            yield blocker(message, path)


def _outside_in_history(context: GateContext) -> Iterator[Feedback]:
    """Look at paths that only commits on the way touched."""
    limits, now = context.bounds, set(_touched_paths(context))
    for past in context.history:
        path = past.entry.path
        is_in = not limits.inside or limits.includes(path) or is_companion(context, path)
        if path not in now and (limits.excludes(path) or not is_in):
            yield blocker(f"this is outside of the scope, and was added {past.where}", path, mend=ONE_COMMIT)


def _with_relative_paths(context: GateContext, entry: str) -> str:
    """Return *entry* with the paths in it as the tree has them: an agent may name them as it sees them."""
    repository = context.repository
    for top in (repository.area / context.task.id, repository.root, repository.root.resolve()):
        entry = entry.replace(f"{top}/", "")
    return entry


def _unannounced_files(options: ScopeOptions, context: GateContext) -> Iterator[Feedback]:
    if context.checkpoint is None:
        return
    announced = [
        path
        for entry in context.checkpoint.files_to_modify
        for path in paths_in_entry(_with_relative_paths(context, entry))
    ]
    for path in _touched_paths(context):
        if _is_allowed_unannounced(context, path, announced) or any(
            matches(pattern, path) for pattern in announced
        ):
            continue
        message = (
            "the checkpoint does not announce this among files_to_modify; announce it, or leave it alone"
        )
        # Who announced nothing is told, and left to the reviewer; who announced something is held to it.
        needed = options.announced == "required" and bool(announced) and not is_companion(context, path)
        yield (blocker if needed else concern)(message, path)


def _is_allowed_unannounced(context: GateContext, path: str, announced: list[str]) -> bool:
    """Return whether the scope itself allows *path*, or has been held against it already.

    What is new inside of it may come up during the work. That something which is there already has to
    change is known before, unless it is a test: so a directory of the scope is no announcement.
    """
    bounds = context.bounds
    if not bounds.inside:
        return False
    is_old = path in context.base_files and not is_for_tests(path)
    return not announced or bounds.names(path) or not bounds.includes(path) or not is_old


def _outside_step(context: GateContext) -> Iterator[Feedback]:
    """Look at what the last step touched and was not given out to touch."""
    if context.step is None:
        return
    named = [
        path for entry in context.step.files for path in paths_in_entry(_with_relative_paths(context, entry))
    ]
    for path in sorted({path for entry in context.step_diff for path in entry.paths}):
        if not any(matches(pattern, path) for pattern in named) and not is_companion(context, path):
            yield blocker("the step does not name this among its files; undo the change", path)


def _oversize(options: ScopeOptions, context: GateContext) -> Iterator[Feedback]:
    loc = sum(entry.loc for entry in context.step_diff if not is_generated(entry.path))
    risk = step_risk(context.step) if context.step else None
    size = ChangeSize(loc, len(context.step_diff), "docs_only" in diff_facts(context.step_diff), risk)
    limit = SizeLimit(options.max_loc, options.max_files, options.limit, options.tolerance)
    is_waived = context.task.waives(WAIVER)
    yield from (
        blocker(f"{message}; split the work") for message in oversize(size, limit, is_waived=is_waived)
    )
