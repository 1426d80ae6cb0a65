"""Rechecking merged history: what each merge must be is computed anew, and no agent's word counts.

Trailers alone prove nothing, since anybody can write them. A merge is proven by the key of the board that
made it, or by the board itself; where neither is at hand, history can only be found consistent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from liza.errors import NotThere
from liza.repo.merge import Conflict, Trailer, is_signed, key_label, merge, parse_trailers, signer_label
from liza.repo.repository import Repository

# Where a file's content comes from: what tasks brought to the integration branch is an agent's.


def blobs_by_agents(
    repository: Repository, path: str, *, base: str, ref: str, yours: Iterable[str] = ()
) -> frozenset[str]:
    """Return the blobs of *path* that merged tasks wrote on *ref* after *base*.

    Commits in *yours*, and what they merged, are a person's.
    """
    own = set(yours)
    sides = [side for one in own if (side := repository.commit_at(f"{one}^2"))]
    words = ("log", "-m", "--full-history", "--raw", "--no-abbrev", "--no-renames", "--format=%H")
    span = (f"{base}..{ref}", *(f"^{side}" for side in sides))
    answer = repository.ask(*words, *span, "--", path)
    found, commit = set(), ""
    for line in answer.text.splitlines() if answer.code == 0 else ():
        if line.startswith(":"):
            found |= {line.split(" ")[3]} if commit not in own else set()
        elif line:
            commit = line
    return frozenset(blob for blob in found if blob.strip("0"))


REQUIRED: Final = (Trailer.TASK, Trailer.REVIEWED_COMMIT, Trailer.VERDICT, Trailer.APPROVED_BY)
_PARENTS_OF_A_MERGE: Final = 2


class ViolationKind(StrEnum):
    """What can be wrong with a commit on the integration branch."""

    NOT_A_MERGE = "not a merge"
    TRAILER_MISSING = "trailer missing"
    OTHER_COMMIT = "other commit"
    OTHER_TREE = "other tree"
    MERGED_TWICE = "merged twice"
    REWRITTEN = "rewritten"
    NOT_OF_THE_BOARD = "not of the board"
    NOT_SIGNED = "not signed"
    FORGED = "forged"


class HistoryViolation(NamedTuple):
    """One thing that is not as it must be."""

    commit: str
    problem: ViolationKind
    sentence: str

    def __str__(self) -> str:
        return f"{self.commit[:12]}: {self.sentence}"


class ChainCommit(NamedTuple):
    """One commit of the first-parent chain."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    trailers: dict[str, str]
    message: str = ""

    def is_signed_with(self, key: bytes) -> bool:
        return is_signed(key, tree=self.tree, parents=self.parents, message=self.message)


class TrustedFacts(NamedTuple):
    """Trusted facts about merges, from the board and its key."""

    key: bytes | None = None
    has_board: bool = False
    base: str | None = None  # where the board found the branch; what came before is not its own
    merges: Mapping[str, str] = {}  # commit: task
    archived: frozenset[str] = frozenset()  # tasks that were merged and have left the board
    yours: frozenset[str] = frozenset()  # commits that people made, and that the board took as theirs

    @property
    def can_prove(self) -> bool:
        return self.has_board or self.key is not None

    def names(self, link: ChainCommit) -> bool:
        """Return whether the board was told of the merge *link*."""
        if link.commit in self.merges:
            return True
        is_archived = link.trailers.get(Trailer.TASK) in self.archived
        return is_archived and self.key is not None and link.is_signed_with(self.key)


class VerifyReport(NamedTuple):
    """What came of checking a part of history."""

    merges: int
    findings: list[HistoryViolation]
    yours: int = 0
    is_proven: bool = True

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values; what goes without saying is not said."""
        return {
            "merges": self.merges,
            "findings": [finding._asdict() for finding in self.findings],
            **({"yours": self.yours} if self.yours else {}),
            **({} if self.is_proven else {"proven": False}),
        }

    def __str__(self) -> str:
        """Say what came of it where nothing was found."""
        if not self.is_proven:
            return (
                f"NOT PROVEN: {self.merges} merges are what their trailers say, but who made them can only "
                "be checked with the `.liza/key` of the board that merged them: `liza verify --key FILE`"
            )
        people = f", and {self.yours} commits of people" if self.yours else ""
        return f"VERIFIED: {self.merges} merges{people}"


def verify_span(repository: Repository, span: str, known: TrustedFacts = TrustedFacts()) -> VerifyReport:  # noqa: B008 - it is a value
    """Check *span* as git writes one: `SINCE..UNTIL`, or a name alone from its first merge on."""
    since, _, until = span.rpartition("..")
    named = {name: repository.commit_at(name) for name in (since, until) if name}
    if missing := [name for name, commit in named.items() if commit is None]:
        hint = "name commits or branches of this repository; `liza run` makes the integration branch"
        raise NotThere("commit", missing[0], hint)
    start = named.get(since)
    chain = list(first_parent_chain(repository, until, start))
    yours = sum(link.commit in known.yours for link in chain)
    merges = [
        link for link in chain if len(link.parents) == _PARENTS_OF_A_MERGE and link.commit not in known.yours
    ]
    findings = verify_history(repository, until, since=start, known=known)
    return VerifyReport(len(merges), findings, yours, known.can_prove or not merges)


def verify_history(
    repository: Repository,
    ref: str,
    *,
    since: str | None = None,
    known: TrustedFacts = TrustedFacts(),  # noqa: B008 - it is a value
) -> list[HistoryViolation]:
    """Return all that is wrong with what was merged into *ref* after the commit *since*."""
    if since is not None and not repository.contains(ref, since):
        sentence = f"{ref} does not contain it any more: its history was rewritten"
        return [HistoryViolation(since, ViolationKind.REWRITTEN, sentence)]
    chain = [link for link in first_parent_chain(repository, ref, since) if link.commit not in known.yours]
    return [
        *_repeated_merges(chain),
        *(finding for link in chain for finding in _invalid_merge(repository, link)),
        *_unproven_merges(repository, chain, known),
    ]


def _unproven_merges(
    repository: Repository, chain: Iterable[ChainCommit], known: TrustedFacts
) -> Iterator[HistoryViolation]:
    if not known.can_prove:
        return
    # What is no merge has its finding, and what is older than the board is none of its own.
    older = set(repository.git("rev-list", "--first-parent", known.base).split()) if known.base else set()
    for link in chain:
        if len(link.parents) == _PARENTS_OF_A_MERGE and link.commit not in older:
            yield from _trust_violations(link, known)


def _trust_violations(link: ChainCommit, known: TrustedFacts) -> Iterator[HistoryViolation]:
    label, is_named = signer_label(link.message), known.names(link)
    if known.has_board and not is_named:
        sentence = "no task of the board was merged by it, whatever its trailers say"
        yield HistoryViolation(link.commit, ViolationKind.NOT_OF_THE_BOARD, sentence)
    elif known.key is None or (is_named and label != key_label(known.key)):
        return  # the board vouches for what was merged before there was this key
    elif label is None:
        yield HistoryViolation(
            link.commit, ViolationKind.NOT_SIGNED, "it is not signed, so its trailers prove nothing"
        )
    elif label != key_label(known.key):
        sentence = f"it was signed with the key {label}, and the key here is {key_label(known.key)}"
        yield HistoryViolation(link.commit, ViolationKind.NOT_SIGNED, sentence)
    elif not link.is_signed_with(known.key):
        yield HistoryViolation(link.commit, ViolationKind.FORGED, "its signature is of another commit")


def first_parent_chain(repository: Repository, ref: str, since: str | None) -> Iterator[ChainCommit]:
    """Yield the first-parent line of *ref* after *since*, oldest first; else from the first merge on."""
    span = f"{since}..{ref}" if since else ref
    fields = "%H%x00%T%x00%P%x00%B%x00"
    words = ("log", "-z", "--first-parent", "--reverse", f"--format=tformat:{fields}", span)
    output = repository.git(*words).split("\0")
    rows = zip(*(output[start::5] for start in range(4)), strict=False)
    found = [
        ChainCommit(commit, tree, tuple(parents.split()), parse_trailers(said), said)
        for commit, tree, parents, said in rows
    ]
    begun = since is not None
    for link in found:
        begun = begun or Trailer.TASK in link.trailers
        if begun:
            yield link


def _repeated_merges(chain: Iterable[ChainCommit]) -> Iterator[HistoryViolation]:
    seen: dict[str, str] = {}
    for link in chain:
        task = link.trailers.get(Trailer.TASK)
        if task in seen:
            sentence = f"{task} was merged before, as {seen[task][:12]}"
            yield HistoryViolation(link.commit, ViolationKind.MERGED_TWICE, sentence)
        elif task:
            seen[task] = link.commit


def _invalid_merge(repository: Repository, link: ChainCommit) -> Iterator[HistoryViolation]:
    if len(link.parents) != _PARENTS_OF_A_MERGE:
        yield HistoryViolation(
            link.commit, ViolationKind.NOT_A_MERGE, "it is no merge, so nobody reviewed it"
        )
        return
    for key in REQUIRED:
        if key not in link.trailers:
            yield HistoryViolation(link.commit, ViolationKind.TRAILER_MISSING, f"it does not say its {key}")
    onto, commit = link.parents
    reviewed = link.trailers.get(Trailer.REVIEWED_COMMIT, commit)
    if reviewed != commit:
        sentence = f"{reviewed[:12]} was reviewed, but {commit[:12]} was merged"
        yield HistoryViolation(link.commit, ViolationKind.OTHER_COMMIT, sentence)
    yield from _other_tree(repository, link, onto, commit)


def _other_tree(
    repository: Repository, link: ChainCommit, onto: str, commit: str
) -> Iterator[HistoryViolation]:
    merged = merge(repository, onto, commit)
    conflicting = set(merged.paths) if isinstance(merged, Conflict) else set()
    resolved = _resolved_paths(link) & conflicting
    differing = _differing_paths(repository, merged.tree, link.tree)
    for path in sorted((differing | conflicting) - resolved):
        sentence = f"{path} is not what merging {commit[:12]} into {onto[:12]} gives"
        yield HistoryViolation(link.commit, ViolationKind.OTHER_TREE, sentence)


def _differing_paths(repository: Repository, one: str, other: str) -> set[str]:
    if one == other:
        return set()
    output = repository.git("diff-tree", "-r", "-z", "--no-renames", "--name-only", one, other)
    return {path for path in output.split("\0") if path}


def _resolved_paths(link: ChainCommit) -> set[str]:
    try:
        paths = json.loads(link.trailers.get(Trailer.RESOLVED, "[]"))
    except ValueError:
        return set()
    return set(map(str, paths)) if isinstance(paths, list) else set()
