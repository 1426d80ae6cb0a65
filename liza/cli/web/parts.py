"""Pieces that several pages have in common: a status, a length of time, a card, a form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.cli.views.html import Element, el
from liza.cli.views.questions import PersonAction, QuestionKind
from liza.cli.views.words import rounds_text, seconds_text, sent_back_text, usd
from liza.cli.web.security import CSRF_FIELD
from liza.domain.model import STATUS_MEANING, Status
from liza.domain.report_words import duration_text

if TYPE_CHECKING:
    from datetime import datetime

    from liza.cli.views.board_view import TaskView, WorkerView
    from liza.cli.views.html import Child
    from liza.cli.views.questions import OpenQuestion
    from liza.cli.web.security import PageAccess

COMMENTS: Final = "comments"  # the field with comments on lines, and the table whose lines take some


def pill(status: str) -> Element:
    meaning = STATUS_MEANING[Status(status)] if status in set(Status) else None
    dot = el("span", class_=f"dot s-{status}", aria_hidden="true")
    return el("span", dot, status.replace("_", " ").lower(), class_="pill", title=meaning)


def ago(at: datetime | None, now: datetime) -> Element | str:
    if at is None:
        return ""
    return el(
        "time", duration_text(now - at), datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}", title=f"{at:%Y-%m-%d %H:%M:%SZ}"
    )


def task_link(name: str) -> Element:
    return el("a", name, href=f"/tasks/{name}", class_="task-link")


def section(title: str, *children: Child, id_: str | None = None) -> Element:
    return el("section", el("h2", title), *children, class_="panel", id=id_)


def empty(sentence: str) -> Element:
    return el("p", sentence, class_="empty")


def form(
    access: PageAccess, action: str, *children: Child, back: str = "/", confirm: str | None = None
) -> Element | None:
    """Return a form that does *action*, with the token without which nothing is changed."""
    if access.read_only:
        return None
    return el(
        "form",
        el("input", type="hidden", name=CSRF_FIELD, value=access.csrf),
        el("input", type="hidden", name="back", value=back),
        *children,
        method="post",
        action=f"/do/{action}",
        hx_post=f"/do/{action}",
        hx_target="#toasts",
        hx_confirm=confirm,
        class_="do",
    )


def hidden(name: str, value: str) -> Element:
    return el("input", type="hidden", name=name, value=value)


def field(
    label: str, name: str, key: str, *, lines: int = 1, required: bool = True, value: str = ""
) -> Element:
    """Return a labelled box; *key* makes its id one of a kind on the page."""
    mark = f"{name}-{key}"
    box = (
        el("input", id=mark, name=name, required=required, autocomplete="off", value=value or None)
        if lines == 1
        else el("textarea", value, id=mark, name=name, rows=lines, required=required)
    )
    return el("label", el("span", label), box, for_=mark)


def button(text: str, css: str = "") -> Element:
    return el("button", text, type="submit", class_=css or None)


def card(task: TaskView, now: datetime) -> Element:
    """Return a task as a card of the board."""
    rounds = task.place or (
        f"round {rounds_text(task.iteration, task.max_iterations)}" if task.iteration else ""
    )
    facts = [
        el("span", task.holder, class_="holder") if task.holder else None,
        el("span", rounds) if rounds and not task.is_over else None,
        el("span", sent_back_text(task.rejections), class_="bad") if task.rejections else None,
        el("span", usd(task.usd)) if task.usd else None,
        el("span", ago(task.since, now)),
    ]
    why = el("p", task.why, class_="why") if task.why and (task.needs_person or task.waits_for) else None
    return el(
        "article",
        el("h3", task_link(task.id), pill(task.status)),
        el("p", task.description, class_="what"),
        why,
        el("p", facts, class_="facts"),
        class_=f"card {'asks' if task.needs_person else ''}".strip(),
        id=f"card-{task.id}",
    )


def worker_panel(worker: WorkerView) -> Element:
    """Return a worker with what its agent printed last."""
    state = "gone" if worker.is_alive is False else worker.status.lower()
    doing: list[Child] = [worker.why or state]
    if worker.task:
        doing = [el("span", worker.step), " ", task_link(worker.task)]
    use = worker.use
    tail = el("pre", "\n".join(worker.lines), class_="tail", tabindex=0, aria_label=f"What {worker.id} says")
    return el(
        "article",
        el(
            "h3",
            el("span", class_=f"dot w-{state}", aria_hidden="true"),
            worker.id,
            el("small", worker.agent),
        ),
        el("p", doing, " ", el("small", seconds_text(worker.seconds) if worker.since else "")),
        el("p", el("small", str(use))) if use else None,
        tail if worker.lines else None,
        class_="card worker",
        id=f"worker-{worker.id}",
    )


_TITLES: Final = {
    QuestionKind.TRIP: "The circuit breaker stopped everybody",
    QuestionKind.BUDGET: "The money is used up",
    QuestionKind.PLAN: "The planner asks",
    QuestionKind.PROPOSAL: "The plan asks for your approval",
    QuestionKind.APPROVAL: "It asks for your approval",
    QuestionKind.TAINT: "It passed by force",
    QuestionKind.DRAFT: "A draft waits",
    QuestionKind.STOPPED: "A worker was stopped",
    QuestionKind.PROVIDER: "A provider refuses",
}


def question_panel(
    question: OpenQuestion,
    access: PageAccess,
    now: datetime,
    is_task: bool,  # noqa: FBT001
    *,
    beside_diff: bool = False,
) -> Element:
    """Return something that waits for a person, with what they can do about it."""
    name = task_link(question.subject) if is_task else question.subject
    title = _TITLES.get(question.kind, "It asks")
    forms = [_answer_form(action, question, access, beside_diff) for action in question.actions]
    said = (
        el("pre", "\n".join(question.said), class_="tail", tabindex=0, aria_label="What was said")
        if question.said
        else None
    )
    look = (
        el("p", el("a", "Look at what it changed", href=f"/tasks/{question.subject}#diff"))
        if is_task
        else None
    )
    return el(
        "article",
        el("h3", name, el("small", title, " ", ago(question.since, now))),
        el("ul", (el("li", one) for one in question.asks), class_="asks"),
        el("p", question.because, class_="why") if question.because else None,
        said,
        look if question.kind is QuestionKind.APPROVAL else None,
        el("div", forms, class_="forms"),
        el("p", el("small", "or type ", el("code", question.command))),
        class_="card question",
        id=f"question-{question.kind}-{question.subject}",
    )


def _answer_form(  # noqa: PLR0911 - one for each action
    action: PersonAction,
    question: OpenQuestion,
    access: PageAccess,
    beside_diff: bool,  # noqa: FBT001
) -> Element | None:
    name, key = question.subject, f"{question.kind}-{question.subject}"
    task = hidden("task", name)
    match action:
        case PersonAction.ANSWER:
            label = "Amount in USD" if question.kind is QuestionKind.BUDGET else "Your answer"
            box = field(label, "text", key, lines=1 if question.kind is QuestionKind.BUDGET else 2)
            return form(access, "answer", task, box, button("Answer", "go"))
        case PersonAction.ACCEPT:
            return form(
                access, "accept", task, hidden("reason", "accepted on the page"), button("Accept", "go")
            )
        case PersonAction.REJECT:
            box = field("What is wrong with it", "reason", key, lines=2)
            lines = comments_box(key) if beside_diff else None
            return form(access, "reject", task, box, lines, button("Reject", "stop"))
        case PersonAction.READY:
            return form(access, "ready", task, button("Release to the coders", "go"))
        case PersonAction.RETRY:
            return form(access, "retry", task, hidden("guidance", ""), button("Try again without an answer"))
        case PersonAction.RESOLVE:
            box = field("What was done about it", "reason", key)
            return form(access, "resolve", hidden("trip", name), box, button("Resolve", "go"))
        case PersonAction.RESUME:
            return form(access, "resume", button("Try again", "go"))
    return None


def comments_box(key: str) -> Element:
    """Return the box whose lines go back as comments; the script of the page fills it from the diff."""
    label = "Comments on lines (file:line:words, one a line)"
    return field(label, COMMENTS, key, lines=2, required=False)


def switch_forms(access: PageAccess, switches: object) -> Element | None:
    """Return the buttons that stop everybody, and the one that lets them go on."""
    if access.read_only:
        return None
    if switches:
        return el("div", form(access, "resume", button("Resume", "go")), class_="forms")
    pause = form(access, "pause", hidden("reason", "from the page"), button("Pause"))
    halt = form(access, "checkpoint", hidden("reason", "from the page"), button("Halt for a look"))
    abort = form(
        access, "abort", hidden("reason", "from the page"), button("Abort", "stop"),
        confirm="End every agent now? Work in progress is saved.",
    )  # fmt: skip
    return el("div", pause, halt, abort, class_="forms")
