"""Issues of a forge as work: which are asked for, what each waits for, and the branch that it is done on."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from liza.domain.record import NonEmptyStr, Record
from liza.errors import UsageError

MOST_ISSUES: Final = 500  # of one selection; a slip such as 1-50000 is told instead of worked on
LONGEST_SLUG: Final = 40  # characters of a title in the name of a branch
DEFAULT_PREFIX: Final = "feature"  # of the branch of an issue without labels
LABEL: Final = "label:"

Number = Annotated[int, Field(ge=1)]


class IssueComment(Record):
    author: str
    body: str


class Issue(Record):
    """An open issue with a text; *comments* are those that Liza did not write."""

    number: Number
    title: NonEmptyStr
    body: NonEmptyStr
    labels: tuple[NonEmptyStr, ...] = ()
    comments: tuple[IssueComment, ...] = ()


class IssueProblem(StrEnum):
    """Why an issue cannot be worked on."""

    CLOSED = "closed"
    MISSING = "missing"
    EMPTY = "empty"
    UNREADABLE = "unreadable"


_PROBLEM_SENTENCES: Final[dict[IssueProblem, str]] = {
    IssueProblem.CLOSED: "issue #{number} is closed; reopen it, or leave it out",
    IssueProblem.MISSING: "there is no issue #{number}; look at the number",
    IssueProblem.EMPTY: "issue #{number} has no text; say in it what is to be done",
    IssueProblem.UNREADABLE: "issue #{number} cannot be read: {why}",
}


class UnfitIssue(NamedTuple):
    """An issue that cannot be worked on; the others of the selection can."""

    number: int
    problem: IssueProblem
    why: str = ""

    def __str__(self) -> str:
        return _PROBLEM_SENTENCES[self.problem].format(number=self.number, why=self.why)


class IssueSelection(NamedTuple):
    """The issues that somebody asked for: by number, or all open ones with a label."""

    numbers: tuple[int, ...] = ()
    label: str | None = None


_RANGE: Final = re.compile(r"#?(\d{1,9})(?:\s*-\s*#?(\d{1,9}))?")


def parse_selection(text: str) -> IssueSelection:
    """Return what `1-5,8` or `label:agent` asks for; raise UsageError with the part that is wrong."""
    if text.strip().casefold().startswith(LABEL):
        label = text.strip()[len(LABEL) :].strip()
        if not label:
            raise UsageError(f"{text!r} names no label; write it as `{LABEL}agent`")
        return IssueSelection(label=label)
    numbers = dict.fromkeys(number for part in text.split(",") for number in _numbers_in(part))
    if len(numbers) > MOST_ISSUES:
        raise UsageError(
            f"{text!r} asks for more issues than the {MOST_ISSUES} that may be asked for at once"
        )
    return IssueSelection(tuple(numbers))


def _numbers_in(part: str) -> range:
    found = _RANGE.fullmatch(part.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last:
        raise UsageError(
            f"{part.strip()!r} is no issue number or range; write issues as `1-5,8` or `{LABEL}agent`"
        )
    # One more than may be is enough to tell that there are too many.
    return range(first, min(last, first + MOST_ISSUES) + 1)


_CODE: Final = re.compile(
    r"^(`{3,}|~{3,}).*?(?:^\1|\Z)|`[^`\n]*`|<!--(?:.*?-->|.*\Z)", re.DOTALL | re.MULTILINE
)
_REFERENCE: Final = r"(?<![\w/])#(\d{1,9})\b"
_PHRASE: Final = re.compile(
    r"\b(?:depends\s+on|blocked\s+by|after|requires):?\s+"
    rf"(?:{_REFERENCE}(?:\s*(?:,|;|&|\band\b|,\s*and\b)\s*(?=#\d))?)+",
    re.IGNORECASE,
)


def dependencies_in(body: str) -> tuple[int, ...]:
    """Return the issues that *body* says it waits for; what is quoted as code says nothing."""
    phrases = _PHRASE.finditer(_CODE.sub(" ", body))
    numbers = (int(number) for phrase in phrases for number in re.findall(_REFERENCE, phrase[0]))
    return tuple(dict.fromkeys(number for number in numbers if number > 0))


class IssueQueue(NamedTuple):
    """The issues in the order in which they can be done, what each waits for, and which cannot be."""

    order: tuple[int, ...]
    waits_for: Mapping[int, tuple[int, ...]]
    blocked: Mapping[int, str]


def queue_issues(
    issues: Iterable[Issue], *, ended: Iterable[int] = (), unfit: Iterable[UnfitIssue] = ()
) -> IssueQueue:
    """Order *issues* by what they wait for, lower numbers first; *ended* are issues whose work is done.

    An issue that waits for itself, for one of *unfit* or for one that nobody works on is blocked with a
    sentence, and so is what waits for it.
    """
    found = {issue.number: issue for issue in issues}
    done = frozenset(ended)
    waits = {
        number: tuple(parent for parent in dependencies_in(issue.body) if parent not in done)
        for number, issue in sorted(found.items())
    }
    blocked = _unreachable(waits, {one.number: str(one) for one in unfit}) | _circular(waits)
    blocked = with_dependants(waits, blocked)
    free = {number: parents for number, parents in waits.items() if number not in blocked}
    order = _sort(free)
    return IssueQueue(order, _chain_parents(free, order), blocked)


def _unreachable(waits: Mapping[int, tuple[int, ...]], unfit: Mapping[int, str]) -> dict[int, str]:
    blocked = {}
    for number, parents in waits.items():
        missing = next((parent for parent in parents if parent not in waits), None)
        if missing is not None:
            why = unfit.get(
                missing, f"nobody works on #{missing}; add it to the issues, or close it when it is done"
            )
            blocked[number] = f"issue #{number} waits for #{missing}: {why}"
    return blocked


def _circular(waits: Mapping[int, tuple[int, ...]]) -> dict[int, str]:
    """Return the sentence for every issue that waits for itself, directly or through others."""
    blocked: dict[int, str] = {}
    left = {number: [parent for parent in parents if parent in waits] for number, parents in waits.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle = list(reversed(error.args[1]))
        else:
            return blocked
        said = " waits for ".join(f"#{number}" for number in circle)
        sentence = f"{said}: none of them can begin; remove one of these dependencies"
        blocked |= dict.fromkeys(circle, sentence)
        left = {
            number: [parent for parent in parents if parent not in blocked]
            for number, parents in left.items()
            if number not in blocked
        }


def with_dependants(waits: Mapping[int, tuple[int, ...]], blocked: Mapping[int, str]) -> dict[int, str]:
    """Return *blocked* with what waits for it, directly or through others, each with its sentence."""
    known = dict(blocked)
    while True:
        more = {
            number: f"issue #{number} waits for #{parent}, which is blocked"
            for number, parents in waits.items()
            if number not in known
            for parent in parents
            if parent in known
        }
        if not more:
            return known
        known |= more


def _sort(waits: Mapping[int, tuple[int, ...]]) -> tuple[int, ...]:
    sorter = TopologicalSorter(waits)
    sorter.prepare()
    order: list[int] = []
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        order.append(ready.pop(0))
        sorter.done(order[-1])
    return tuple(order)


def _chain_parents(
    waits: Mapping[int, tuple[int, ...]], order: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    """Let parents of one issue wait for each other, so that the branch of the last has the work of all."""
    place = {number: position for position, number in enumerate(order)}
    chained = {number: dict.fromkeys(waits[number]) for number in order}
    for number in order:
        parents = sorted(waits[number], key=place.__getitem__)
        for earlier, later in pairwise(parents):
            chained[later].setdefault(earlier)
    return {number: tuple(sorted(parents, key=place.__getitem__)) for number, parents in chained.items()}


def slug_of(text: str) -> str:
    """Return *text* in lower case with a dash for all that is no letter or digit; empty where none is."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().casefold()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:LONGEST_SLUG].strip("-")


def branch_for(issue: Issue) -> str:
    """Return the branch for *issue*, such as `bug/issue-7-fix-the-crash`."""
    prefix = slug_of(issue.labels[0]) if issue.labels else ""
    return f"{prefix or DEFAULT_PREFIX}/issue-{issue.number}-{slug_of(issue.title) or 'work'}"


def existing_branch(number: int, names: Iterable[str]) -> str | None:
    """Return the first of *names* that is a branch of issue *number*."""
    return next((name for name in names if f"/issue-{number}-" in f"/{name}"), None)


def issue_of_branch(name: str) -> int | None:
    """Return the number of the issue that the branch *name* is for."""
    found = re.search(r"(?:^|/)issue-(\d+)-", name)
    return int(found[1]) if found else None
