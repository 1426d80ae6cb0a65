"""One task with all that happened to it: history, what was announced, findings, diff and transcripts."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from liza.cli.views.diffs import file_heading, task_diff
from liza.cli.views.html import Element, el, scrollable
from liza.cli.views.logs import LogReader, LogRequest
from liza.cli.views.questions import PersonAction
from liza.cli.views.status import whole_task
from liza.cli.views.words import EVENT_WORDS, rounds_text, seconds_text, sent_back_text, usd
from liza.cli.web.parts import (
    COMMENTS,
    ago,
    button,
    empty,
    field,
    form,
    hidden,
    pill,
    question_panel,
    section,
    task_link,
)
from liza.errors import LizaError, NotThere, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from liza.board.protocol import Board
    from liza.cli.views.board_view import BoardView
    from liza.cli.views.gather import Gatherer
    from liza.cli.views.html import Child
    from liza.cli.views.questions import OpenQuestion
    from liza.cli.web.security import PageAccess
    from liza.repo.repository import FilePatch, PatchLine

SHOWN_DIFF: Final = 3000  # lines of one diff; `liza diff` has all of it
SHOWN_LOG: Final = 400  # lines of one transcript
HINT: Final = "the board has all that there are"
MARKS: Final = {"+": "plus", "-": "minus", "@": "hunk"}


def show(board: Board, gatherer: Gatherer, view: BoardView, access: PageAccess, name: str) -> Element:
    """Return the page of the task *name*, live or archived."""
    task = whole_task(board.entries(), name)
    if task is None:
        raise NotThere("task", name, HINT)
    asks = [one for one in view.questions if one.subject == name]
    asked = [question_panel(one, access, view.at, is_task=True, beside_diff=True) for one in asks]
    shown = view.task(name)
    runs = [run for run in gatherer.runs.records() if run.task == name]
    return el(
        "div",
        el(
            "div",
            el("h1", name, pill(task["status"])),
            el("p", task["description"], class_="lead"),
            el("p", shown.why, class_="why") if shown and shown.why and not shown.is_over else None,
            class_="title",
        ),
        asked,
        _facts(task, view),
        _announcement(task.get("checkpoint")),
        section("What the gates said", _findings(task)),
        section("Rejected because", _feedback(task)) if task.get("rejection_feedback") else None,
        section("What it changed", _diff(board, name, _comment_form(asks, access)), id_="diff"),
        section("Transcripts", _runs(runs, view)),
        section("History", _history(task["history"], view.at)),
        _forms(access, name, is_over=shown is None or shown.is_over),
    )


def _facts(task: Mapping[str, Any], view: BoardView) -> Element:
    shown = view.task(task["id"])
    scope = task.get("scope") or {}
    rows: dict[str, Child] = {
        "Done when": el("ul", (el("li", one) for one in task.get("done_when", ()))),
        "May touch": ", ".join(scope.get("in", ())) or "anything",
        "Must not touch": ", ".join(scope.get("out", ())),
        "Depends on": [[task_link(one), " "] for one in task.get("depends_on", ())],
        "Replaced by": [[task_link(one), " "] for one in task.get("superseded_by", ())],
        "Held by": shown.holder if shown else None,
        "Where": shown.place if shown else None,
        "Rounds": f"{rounds_text(shown.iteration, shown.max_iterations)}, {sent_back_text(shown.rejections)}"
        if shown and not shown.place
        else None,
        "Cost": f"{usd(shown.usd)} of {usd(shown.cap_usd)}" if shown else None,
        "Merged as": el("code", task["merge_commit"][:12]) if task.get("merge_commit") else None,
        "Guidance": task.get("guidance"),
    }
    shown_rows = (el("div", el("dt", name), el("dd", value)) for name, value in rows.items() if value)
    return el("dl", shown_rows, class_="facts-list")


def _announcement(said: Mapping[str, Any] | None) -> Element | None:
    """Return what the coder said that it would do."""
    if said is None:
        return None
    check = said.get("validation") or {}
    rows = {
        "Intent": said["intent"],
        "Assumes": el("ul", (el("li", one) for one in said.get("assumptions", ())))
        if said.get("assumptions")
        else None,
        "Risks": said.get("risks"),
        "Will check by": el("code", check["command"]) if check else None,
        "Will change": ", ".join(said.get("files_to_modify", ())),
    }
    shown = (el("div", el("dt", name), el("dd", value)) for name, value in rows.items() if value)
    return section("Announced before the work", el("dl", shown, class_="facts-list"))


def _findings(task: Mapping[str, Any]) -> Element:
    rows = [
        el(
            "tr",
            el("td", one["gate"]),
            el("td", el("span", one["outcome"], class_=f"verdict v-{one['outcome']}")),
            el("td", one.get("reason", ""), _evidence(one.get("evidence"))),
        )
        for one in task.get("verdicts", ())
    ]
    return el("table", el("tbody", rows)) if rows else empty("None has looked at it in this round.")


def _evidence(seen: Mapping[str, Any] | None) -> Element | None:
    if not seen or not seen.get("tail"):
        return None
    head = seen.get("command") or "what was seen"
    run = el("a", "whole output", href=f"/runs/{seen['run']}") if seen.get("run") else None
    return el(
        "details",
        el("summary", head),
        el("pre", seen["tail"], class_="tail", tabindex=0, aria_label="Output"),
        run,
    )


def _feedback(task: Mapping[str, Any]) -> Element:
    items = (
        el(
            "li",
            el("code", f"{one['file']}:{one.get('line', '')} ") if one.get("file") else None,
            one["message"],
        )
        for one in task["rejection_feedback"]
    )
    return el("div", el("p", task.get("rejection_reason", "")), el("ul", items))


def _comment_form(asks: Iterable[OpenQuestion], access: PageAccess) -> str | None:
    """Return the id of the box for comments on lines, which go back with a rejection; None without one."""
    if access.read_only:
        return None
    return next(
        (f"{COMMENTS}-{one.kind}-{one.subject}" for one in asks if PersonAction.REJECT in one.actions), None
    )


def _diff(board: Board, name: str, comments: str | None) -> Element:
    """Return what *name* changed; *comments* is the id of the box for what is said about its lines."""
    try:
        found = task_diff(board, name)
    except LizaError as error:
        return empty(str(error))
    left, parts = SHOWN_DIFF, []
    for one in found.files:
        parts.append(_file(one, left, can_comment=comments is not None))
        left = max(0, left - len(one.lines))
    if not parts:
        return empty("It changed nothing.")
    return el("div", _comment_hint(comments) if comments else None, parts)


def _comment_hint(box: str) -> Element:
    told = (
        "The number of a line takes a comment: a click, or Enter after the arrow keys. All of them go back "
    )
    return el("p", told, el("a", "with the rejection", href=f"#{box}"), ".", class_="empty")


def _file(one: FilePatch, left: int, *, can_comment: bool) -> Element:
    rows = (_line(line, can_comment=can_comment) for line in one.lines[:left])
    more = len(one.lines) - left
    cut = empty(f"{more} more lines; `liza diff` shows all of them") if more > 0 else None
    table = el("table", el("tbody", rows), class_="diff", data_comments=one.path if can_comment else None)
    return el("details", el("summary", file_heading(one)), scrollable(table, one.path), cut, open=left > 0)


def _line(line: PatchLine, *, can_comment: bool) -> Element:
    old: Child = line.old or ""
    new: Child = line.new or ""
    if can_comment and (number := line.new or line.old):
        press = el("button", number, type="button", data_line=number, aria_label=f"comment on line {number}")
        old, new = (old, press) if line.new else (press, new)
    return el(
        "tr",
        el("td", old, class_="line-number"),
        el("td", new, class_="line-number"),
        el("td", line.text if line.sign == "@" else f"{line.sign}{line.text}", class_="code"),
        class_=MARKS.get(line.sign),
    )


def _runs(runs: Iterable[Any], view: BoardView) -> Element:
    rows = [
        el(
            "tr",
            el("td", el("a", "read", href=f"/runs/{run.run}", aria_label=f"read {run.run}")),
            el("td", ago(run.began, view.at)),
            el("td", run.worker),
            el("td", run.step),
            el("td", run.ending or "goes on"),
            el("td", seconds_text(run.seconds) if run.ending else ""),
            el("td", usd(run.usd)),
        )
        for run in runs
    ]
    table = el("table", el("tbody", rows))
    return scrollable(table, "Runs") if rows else empty("No agent has run for it.")


def _history(entries: Iterable[Mapping[str, Any]], now: datetime) -> Element:
    items = [
        el(
            "li",
            ago(datetime.fromisoformat(one["at"]), now),
            " ",
            el("strong", one["by"]),
            " ",
            EVENT_WORDS.get(one["event"], one["event"]),
            [" → ", pill(one["to"])] if one.get("from") != one["to"] else None,
            el("span", f" {one['facts']['reason']}", class_="why")
            if (one.get("facts") or {}).get("reason")
            else None,
        )
        for one in reversed(list(entries))
    ]
    return el("ol", items, class_="news")


def _forms(access: PageAccess, name: str, *, is_over: bool) -> Element | None:
    if access.read_only or is_over:
        return None
    task, back = hidden("task", name), f"/tasks/{name}"
    note = form(
        access,
        "note",
        hidden("about", name),
        field("Note for it", "text", "note", lines=2),
        button("Tell them", "go"),
        back=back,
    )
    retry = form(
        access,
        "retry",
        task,
        field("Guidance", "guidance", "retry", lines=2, required=False),
        button("Try again"),
        back=back,
    )
    why, give_up = field("Why", "reason", "abandon"), button("Abandon it", "stop")
    sure = f"Give {name} up for good?"
    abandon = form(access, "abandon", task, why, give_up, back=back, confirm=sure)
    more = el("details", el("summary", "Move it"), el("div", retry, abandon, class_="forms"))
    return section("Steer it", note, more)


def show_run(board: Board, name: str, before: str | None) -> Element:
    """Return the transcript of a run, as people read it: its end, or what it has before an offset."""
    request = LogRequest(name, SHOWN_LOG, before=_offset(before))
    page = LogReader(board, request, time.sleep).page()
    lines = [el("span", f"{line}\n", class_=f"l-{line.kind}") for line in page.lines]
    box = el("pre", lines, class_="transcript", tabindex=0, aria_label="Transcript")
    told = el("p", el("code", f"liza logs {name} --raw"), " has all of it as it was printed.", class_="empty")
    earlier = el("a", "Earlier", href=f"/runs/{name}?before={page.earlier}") if page.earlier else None
    latest = el("a", "Latest", href=f"/runs/{name}") if before else None
    ways = el("nav", earlier, latest, class_="tabs", aria_label="Parts of the transcript")
    return el("div", el("h1", name), told, ways if earlier or latest else None, box)


def _offset(before: str | None) -> int | None:
    if before is None:
        return None
    if not before.isdecimal() or len(before) > len(str(1 << 63)):
        raise UsageError(f"{before!r} is no place in a transcript; give an offset in bytes")
    return int(before)
