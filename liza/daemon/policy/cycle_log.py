"""The history of a task as entries of the cycle file: who said what in which loop, and who is next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.answers import STEP, issued_step
from liza.domain.cycle_archive import LoopOutcome
from liza.domain.cycle_file import CycleEntry, points_of, signature
from liza.domain.dialects import SignalBlock
from liza.domain.lifecycle import ADDED
from liza.domain.model import HistoryEntry, Outcome, Role, SignalName, Status
from liza.workflow.document import process_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from liza.domain.model import Task
    from liza.workflow.document import Workflow

HUMAN: Final = "human"
PLANNER: Final = "planner"
ROLES: Final = frozenset({PLANNER, "actor", "judge"})  # the hats that a page has names for
# The result that is written for what history calls an event, by who made it; what is not here is not shown.
RESULTS: Final[Mapping[tuple[str, str], str]] = {
    (PLANNER, "proceed"): "PLAN_CREATED",
    (PLANNER, "ask_human"): "PLAN_CREATED",
    (PLANNER, "block"): "CLARIFICATION_NEEDED",
    ("actor", "submit"): "SUCCESS",
    ("actor", "revise"): "FAIL",
    ("actor", "ask_human"): "FAIL",
    ("actor", "block"): "FAIL",
    ("judge", "ask_human"): "PASS",
    ("judge", "approve"): "PASS",
    ("judge", "proceed"): "PASS",
    ("judge", "reject"): "INSUFFICIENT",
    ("judge", "fail_integration"): "INSUFFICIENT",
    ("judge", "block"): "INSUFFICIENT",
    ("judge", "abandon"): "INSUFFICIENT",
    ("judge", "merge"): "PASS",
    (HUMAN, ADDED): "INIT",
    (HUMAN, "unblock"): "INIT",
    (HUMAN, "retry"): "INIT",
    (HUMAN, "retry_merge"): "INIT",
    (HUMAN, "approve"): "APPROVED",
    (HUMAN, "confirm"): "APPROVED",
    (HUMAN, "pass"): "APPROVED",
    (HUMAN, "proceed"): "APPROVED",
    (HUMAN, "accept_taint"): "APPROVED",
    (HUMAN, "reject"): "REVISION_REQUESTED",
    (HUMAN, "abandon"): "REVISION_REQUESTED",
}
_FOR_PEOPLE: Final = frozenset({Status.AWAITING_APPROVAL, Status.BLOCKED})
_ENDS_LOOP: Final = frozenset({"proceed", "reject", "revise", "unblock", "retry", "fail_integration"})
_CLARIFY: Final = "CLARIFICATION_NEEDED"


class CycleLog(NamedTuple):
    """A task in its workflow, and what the page needs to know beside it."""

    flow: Workflow
    task: Task
    goal: int
    show: Callable[[str], str]  # the change of a commit, for people
    said: str = ""  # by a person, in the page itself

    def entries_since(self, known: int) -> list[CycleEntry]:
        """Return what the page says of the events after the first *known*."""
        first = max(0, known - self.task.history_earlier)
        return [
            self._entry(role, entry, follower, loop)
            for entry, follower, loop in self._steps()[first:]
            if (role := self._role(entry), entry.event) in RESULTS
        ]

    def note_entry(self) -> CycleEntry:
        """Return what a person *said* though nobody asked: no event of the task tells of it."""
        loop = self.task.position.loop if self.task.position else 0
        follower, signed = self._next(len(self.task.history) - 1), signature(self.goal, loop, HUMAN)
        block = SignalBlock(HUMAN, RESULTS[HUMAN, ADDED], _first_line(self.said), follower, signed)
        return CycleEntry(loop, HUMAN, self.said, block)

    def counted_loops(self, page: str) -> list[LoopOutcome]:
        """Return what was said of each loop that the rule counted which paused the task, with its points.

        The board has only the latest of its history; the *page* has all of it.
        """
        rule = next(rule for rule in self.flow.watched_rules() if rule.name == self.task.blocked_rule)
        hat = self._hat_of(str(rule.counts.phase))
        back = [
            one
            for one in self.task.decisions
            if one.outcome is Outcome.REVISE and not self.flow.phases[one.phase].loop
        ]
        last = self._steps()[-1][2]
        loops = enumerate(back, start=last - len(back) + 1)
        counted = [(loop, one) for loop, one in loops if one.phase == rule.counts.phase]
        return [
            LoopOutcome(loop, one.reason or "(nothing)", points_of(page, signature(self.goal, loop, hat)))
            for loop, one in counted[-rule.count.number :]
        ]

    def _hat_of(self, phase: str) -> str:
        """Return whose words end *phase*: who works there, or else who judges."""
        return self.flow.phases[phase].worker or "judge"

    def _steps(self) -> list[tuple[HistoryEntry, str, int]]:
        """Return each event with who came next, and its loop."""
        history = self.task.history
        follows = [self._next(place) for place in range(len(history))]
        last = self.task.position.loop if self.task.position else 0
        loops = _loops(list(zip(history, follows, strict=True)), last)
        return list(zip(history, follows, loops, strict=True))

    def _role(self, entry: HistoryEntry) -> str:
        if entry.role is Role.HUMAN or entry.event == ADDED:
            return HUMAN
        hats: dict[Role, str] = {hat.process: name for name, hat in self.flow.roles.items()}
        return hats.get(entry.role, "judge")  # what rules decide is told in the name of who judges

    def _next(self, place: int) -> str:
        """Return who acted next after an event; after the last one, whose job it is now."""
        history, position = self.task.history, self.task.position
        if history[place].target in _FOR_PEOPLE:
            return HUMAN
        later = (self._role(one) for one in history[place + 1 :] if one.role is not Role.SUPERVISOR)
        if follower := next(later, None):
            return follower
        if position is None or position.end is not None or position.waiting is not None:
            return HUMAN
        process = process_at(self.flow, position)
        return next((name for name, hat in self.flow.roles.items() if hat.process is process), HUMAN)

    def _entry(self, role: str, entry: HistoryEntry, follows: str, loop: int) -> CycleEntry:
        result = _CLARIFY if role == PLANNER and "question" in entry.facts else RESULTS[role, entry.event]
        text = self._text(role, entry)
        checks = entry.facts.get("gates")
        fields = {"Checks": ", ".join(f"{name} {said}" for name, said in checks.items())} if checks else {}
        block = SignalBlock(
            role,
            result,
            _first_line(text),
            follows,
            signature(self.goal, loop, role),
            self._confidence(role, entry),
            fields,
        )
        return CycleEntry(loop, role, text, block)

    def _text(self, role: str, entry: HistoryEntry) -> str:
        if entry.event == ADDED:
            return self.task.description
        if role == PLANNER and "question" not in entry.facts and (made := self._artifacts(entry)):
            return made
        if entry.event == "submit" and (commit := entry.facts.get("commit")):
            return self.show(str(commit))
        if entry.event == "merge":
            return "The work is merged."
        return "\n\n".join(_told(entry)) or (self.said if role == HUMAN else self._opinion(entry))

    def _opinion(self, entry: HistoryEntry) -> str:
        """Return why the agents of judges let the work pass; history has the reasons of a no alone."""
        gates = entry.facts.get("gates", {})
        said = (one for one in self.task.verdicts if one.gate in gates and one.judging_worker)
        return "\n\n".join(one.reason for one in said if one.reason and one.at <= entry.at)

    def _confidence(self, role: str, entry: HistoryEntry) -> int | None:
        """Return how sure the agent of *role* was whose turn *entry* ends; a rule is not asked."""
        if entry.role is Role.SUPERVISOR:
            return None
        began = max((one.at for one in self.task.history if one.at < entry.at), default=entry.at)
        ended = min((one.at for one in self.task.history if one.at > entry.at), default=None)
        said = (
            one.value
            for one in reversed(self.task.signals)
            if one.name is SignalName.CONFIDENCE and one.role == role and isinstance(one.value, int)
            if one.at > began and (ended is None or one.at < ended)
        )
        return next(said, None)

    def _artifacts(self, entry: HistoryEntry) -> str:
        """Return what was made in the turn that *entry* ends."""
        made = {name: one.text for name, one in self.task.artifacts.items() if one.at == entry.at}
        step = issued_step(self.task.artifacts) if STEP in made else None
        told = [text for name, text in made.items() if name != STEP]
        if step is not None:
            lists = {"Files": step.files, "Success criteria": step.success_criteria, "Avoid": step.avoid}
            told += [step.objective, step.instructions]
            told += [f"{name}: {', '.join(items)}" for name, items in lists.items()]
            told.append(f"Estimated LOC: {step.loc_estimate}; risk: {step.risk}")
        return "\n\n".join(dict.fromkeys(told))


def _loops(history: Sequence[tuple[HistoryEntry, str]], last: int) -> list[int]:
    """Return the loop of each entry, counted back from the *last*: who plans next begins another one."""
    found: list[int] = []
    for entry, follows in reversed(history):
        is_last_of_loop = entry.target is Status.REJECTED or follows == PLANNER
        last -= entry.event in _ENDS_LOOP and is_last_of_loop
        found.append(0 if entry.event == ADDED else max(0, last))
    found.reverse()
    # What a rule does is about the loop that it saw.
    for place, (entry, _) in enumerate(history):
        if entry.role is Role.SUPERVISOR and place:
            found[place] = found[place - 1]
    return found


def _told(entry: HistoryEntry) -> Iterator[str]:
    facts = entry.facts
    yield from (str(facts[key]) for key in ("reason", "question", "guidance") if facts.get(key))
    for one in facts.get("feedback", ()):
        place = f"{one['file']}:{one.get('line') or 1}: " if one.get("file") else ""
        yield f"- {place}{one['message']}"
    for number, question in enumerate(facts.get("questions", ()), start=1):
        yield f"{number}. {question}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:200]
