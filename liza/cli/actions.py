"""What people do to a board, whichever way they come: typed, clicked, or through an assistant.

Each is one function of a board, so that every way obeys the same rules and says the same sentences. A note or
a switch needs neither workflows nor the daemon, so whatever needs those imports them when it runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.board.protocol import SUPERVISOR_NAME
from liza.domain.budget import BUDGET, PLAN_NAMES, closed_providers, is_cap_question_open, retry_providers
from liza.domain.changes import ASSISTANT, Change, add_note, queue_goal
from liza.domain.config import BREAKER_PREFIX, Switch
from liza.domain.lifecycle import Abandon, Answer, Ready, Release, Waive
from liza.domain.model import Feedback
from liza.errors import Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.lifecycle import Event
    from liza.domain.model import Actor, State

_LINE_COMMENT: Final = re.compile(r"([^:]+):0*([1-9][0-9]{0,8}):(.*)", re.DOTALL)
_LINE_COMMENT_OF_ODD_FILE: Final = re.compile(r"(\S+?):([1-9][0-9]{0,8}):(.*)", re.DOTALL)  # such as a:b.py


class ActionResult(NamedTuple):
    """What an action came to; *revision* is the board's after it, where it changed the board."""

    sentence: str
    revision: int | None = None

    def __str__(self) -> str:
        return self.sentence if self.revision is None else f"{self.sentence} Revision {self.revision}."


def require_text(text: str, what: str) -> str:
    if not text.strip():
        raise UsageError(f"the {what} is empty; say something")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the {what} is not UTF-8 text; write it in another way") from None
    return text


def commit_change(board: Board, change: Change, done: str) -> ActionResult:
    """Let *change* happen, after whatever a person saved."""
    board.absorb()
    return ActionResult(done, board.update(change).revision)


def note(board: Board, *, by: Actor, at: datetime, text: str, about: str | None = None) -> ActionResult:
    change = add_note(require_text(text, "note"), about=about, by=by, at=at)
    return commit_change(board, change, f"Noted{f' for {about}' if about else ''}.{_idle_hint(board)}")


def queue(board: Board, *, by: Actor, at: datetime, text: str, spec: str | None = None) -> ActionResult:
    """Queue a goal behind those that are there."""
    change = queue_goal(require_text(text, "goal"), spec=spec, by=by, at=at)
    done = "Queued; its turn comes when the goals before it are over (`liza goal` lists them)."
    return commit_change(board, change, done)


def answer(board: Board, *, by: Actor, at: datetime, task: str, text: str) -> ActionResult:
    """Answer what a task or the plan asks, or say what all may cost."""
    from liza.workflow.transition import reply

    change = reply(task, require_text(text, "answer"), by=by, at=at)
    others = {BUDGET: "the budget is raised", **dict.fromkeys(PLAN_NAMES, "the planner goes on with it")}
    done = others.get(task, f"{task} is IDLE again, with your answer as guidance")
    checked = _checked_approval(change, by, lambda state: task == BUDGET or is_cap_question_open(state, task))
    return commit_change(board, checked, f"Answered; {done}.")


def accept(
    board: Board, *, by: Actor, at: datetime, task: str, reason: str, squash: bool = False
) -> ActionResult:
    """Say yes to what *task* asks; *squash*: what is merged is one commit."""
    from liza.workflow.document import SQUASH, workflow_on
    from liza.workflow.plan_approval import accept_plan
    from liza.workflow.transition import accept_task

    reason = require_text(reason, "reason")
    if squash and (is_plan(board, task) or not workflow_on(board.read()).offers_squash):
        raise UsageError(f"{task}: nothing is merged here as one commit; leave --squash out")
    if is_plan(board, task):
        change, done = (
            accept_plan(by=by, at=at),
            f"Accepted the plan; its tasks are released to the coders.{_idle_hint(board)}",
        )
    else:
        label = SQUASH if squash else None
        change, done = accept_task(task, reason, by=by, at=at, label=label), f"Accepted {task}."
    return commit_change(board, _checked_approval(change, by), done)


def _idle_hint(board: Board) -> str:
    return "" if board.presence.is_held(SUPERVISOR_NAME) else " Nobody works now; `liza run` goes on."


def is_plan(board: Board, name: str) -> bool:
    """Return whether *name* means the plan as a whole, and not a task that is called so."""
    return name in PLAN_NAMES and board.read().status_of(name) is None


def waive(board: Board, *, by: Actor, at: datetime, task: str, limit: str, reason: str) -> ActionResult:
    """Lift a limit for *task*; who did so and why stays in its history."""
    from liza.domain.answers import WAIVER
    from liza.workflow.transition import apply

    if limit != WAIVER:
        raise UsageError(f"{limit!r} is no limit that can be waived; {WAIVER} is one")
    change = apply(Waive(limit="scope_limit", reason=require_text(reason, "reason")), to=task, by=by, at=at)
    return commit_change(board, _checked_approval(change, by), f"Waived {limit} for {task}.")


def reject(
    board: Board, *, by: Actor, at: datetime, task: str, reason: str, comments: tuple[Feedback, ...] = ()
) -> ActionResult:
    """Say no to what *task* asks; *comments* on its lines go back with the reason, as one round."""
    from liza.workflow.plan_approval import return_plan
    from liza.workflow.transition import reject_task

    reason = require_text(reason, "reason")
    if is_plan(board, task):
        change, done = (
            return_plan(reason, by=by),
            f"Sent the plan back; the planner makes another.{_idle_hint(board)}",
        )
    else:
        change, done = reject_task(task, reason, by=by, at=at, comments=comments), f"Rejected {task}."
    return commit_change(board, _checked_approval(change, by), done)


def parse_comment(text: str) -> Feedback:
    """Return the comment that `FILE:LINE:TEXT` means; the line may be left out."""
    found = _LINE_COMMENT.fullmatch(text) or _LINE_COMMENT_OF_ODD_FILE.fullmatch(text)
    if found:
        file, number, message = found[1], int(found[2]), found[3]
    else:
        file, _, rest = text.partition(":")
        number, message = None, rest.removeprefix(":")
    if not file.strip() or not message.strip():
        raise UsageError(f"{text!r} is no comment; write FILE:LINE:TEXT, such as src/a.py:12:no test")
    return Feedback(file=file, line=number, message=require_text(message.strip(), "comment"))


def add(board: Board, *, by: Actor, at: datetime, typed: Mapping[str, Any]) -> ActionResult:  # noqa: ARG001 - as all
    """Add the task that the words of `liza task add` describe."""
    from liza.cli.views.tasks import new_task

    return commit_change(board, new_task(typed, by), f"Added {typed['id']}.")


def release(board: Board, *, by: Actor, at: datetime, task: str, reason: str) -> ActionResult:
    event = Release(reason=require_text(reason, "reason"))
    return _move(board, event, by=by, at=at, task=task, done=f"Released {task}.")


def retry(board: Board, *, by: Actor, at: datetime, task: str, guidance: str | None = None) -> ActionResult:
    event = Answer(guidance=require_text(guidance, "guidance") if guidance is not None else None)
    return _move(board, event, by=by, at=at, task=task, done=f"{task} is IDLE again.")


def ready(board: Board, *, by: Actor, at: datetime, task: str) -> ActionResult:
    return _move(board, Ready(), by=by, at=at, task=task, done=f"Released {task} to the coders.")


def abandon(board: Board, *, by: Actor, at: datetime, task: str, reason: str) -> ActionResult:
    event = Abandon(reason=require_text(reason, "reason"))
    return _move(board, event, by=by, at=at, task=task, done=f"Abandoned {task}; its work is kept.")


def _move(board: Board, event: Event, *, by: Actor, at: datetime, task: str, done: str) -> ActionResult:
    from liza.workflow.transition import apply

    return commit_change(board, apply(event, to=task, by=by, at=at), done)


def _checked_approval(
    change: Change, by: Actor, is_approval: Callable[[State], bool] = lambda _: True
) -> Change:
    """Return *change*, refused where it is an approval by an assistant and the settings forbid that."""

    def make(state: State) -> State:
        if by == ASSISTANT and not state.config.assistant.approvals and is_approval(state):
            raise Refused(
                "`assistant.approvals` is false, so an assistant may not decide this; "
                "decide it yourself in a terminal or on the page"
            )
        return change.make(state)

    return Change(change.by, change.what, make, change.about)


def throw(board: Board, switch: Switch, *, by: Actor, reason: str = "") -> ActionResult:
    """Throw *switch*; the reason of somebody else stays where none is given."""
    name, switches = switch.name, board.switches
    said = f"by an assistant: {reason}".rstrip(": ") if by == ASSISTANT else reason
    place = switches.place_of(switch)
    if not switches.throw(switch, said):
        before = switches.thrown().get(name, "")
        # The breaker takes back what it threw, so what a person wants has to be in the file itself.
        if not reason and before and not before.startswith(BREAKER_PREFIX):
            return ActionResult(
                f"{name} was thrown already ({place}): {before}; `liza resume` takes it back."
            )
        switches.replace(switch, said)
    return ActionResult(f"{name} is thrown ({place}); `liza resume` takes it back.")


def abort(board: Board, *, by: Actor, reason: str = "") -> ActionResult:
    """Throw ABORT, and return when the run is over; one that does not hear is killed."""
    from liza.daemon.background import ensure_ended

    thrown = throw(board, Switch.ABORT, by=by, reason=reason)
    told = ensure_ended(board.home)
    return ActionResult(f"{thrown}\n{told}.") if told else thrown


def resume(board: Board, *, by: Actor, at: datetime) -> ActionResult:
    """Take back the switches, and let providers be tried again that refused."""
    from liza.daemon import breaker

    taken = breaker.take_back_switches(board, at, by)
    said = f"Took back {', '.join(taken)}." if taken else "No switch was thrown."
    if shut := closed_providers(board.read()):
        board.update(retry_providers(by, at))
        said += f" {', '.join(provider.id for provider in shut)} is tried again now."
    return ActionResult(said)


def resolve(board: Board, *, by: Actor, at: datetime, trip: str, reason: str) -> ActionResult:
    from liza.daemon import breaker

    board.absorb()
    return ActionResult(breaker.resolve_and_resume(board, trip, require_text(reason, "reason"), at, by))
