"""What came of a run, for somebody who was away: values, and as Markdown that fits a pull request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.board_view import board_view, history_view
from liza.cli.views.gather import Gatherer
from liza.cli.views.words import seconds_text
from liza.domain.model import SUCCEEDED, Status
from liza.domain.visible_text import escape_unsafe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.cli.views.board_view import AnomalyView, BoardView, HistoryView, TripView
    from liza.cli.views.costs import CostSum

# What money went to that came to nothing, by the outcome of the run.
NO_WASTE: Final = frozenset({"merged", "complete", "nothing to do", "planned", "open"})
SHOWN: Final = 100  # rows of a table; `liza status` and `liza log` have all
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#!])")


class MergedTask(NamedTuple):
    task: str
    description: str
    commit: str | None


class OpenTask(NamedTuple):
    """A task that was not merged, and why."""

    task: str
    description: str
    status: str
    why: str


class RunReport(NamedTuple):
    """What a report says, of all that happened or of what happened *since* a moment."""

    view: BoardView
    history: HistoryView
    since: datetime | None
    merged: tuple[MergedTask, ...]
    unmerged: tuple[OpenTask, ...]
    waste: dict[str, CostSum]
    anomalies: tuple[AnomalyView, ...]
    trips: tuple[TripView, ...]

    @property
    def title(self) -> str:
        when = f"{self.view.at:%Y-%m-%d %H:%MZ}"
        return f"Since {self.since:%Y-%m-%d %H:%MZ}, until {when}" if self.since else f"Until {when}"


def gather_report(board: Board, now: datetime, since: datetime | None = None) -> RunReport:
    """Return the report of *board* as it is, about what happened since a moment or about all of it."""
    gatherer = Gatherer(board)
    facts = gatherer.facts(now)
    runs = [run for run in gatherer.runs.records() if since is None or run.began >= since]
    return report_of(board_view(facts), history_view(facts, gatherer.past(), runs), since)


def report_of(view: BoardView, history: HistoryView, since: datetime | None) -> RunReport:
    """Return the report of what is shown."""
    ended = {move.task: move for move in history.moves if move.event in {"merge", "complete", "confirm"}}
    merged = tuple(
        MergedTask(name, history.descriptions.get(name, ""), history.merges.get(name))
        for name, move in ended.items()
        if (since is None or move.at >= since) and Status(move.target) in SUCCEEDED
    )
    unmerged = tuple(
        OpenTask(task.id, task.description, str(task.status), task.why)
        for task in view.tasks
        if task.status not in SUCCEEDED
    )
    waste = {name: one for name, one in history.costs["outcome"].items() if name not in NO_WASTE}
    anomalies = tuple(one for one in view.anomalies if since is None or one.at >= since)
    trips = tuple(one for one in view.trips if since is None or one.at >= since)
    return RunReport(view, history, since, merged, unmerged, waste, anomalies, trips)


def takeover_commands(report: RunReport) -> list[str]:
    """Return what to type to look at the merged work, and to take it over."""
    branch = report.view.integration_branch
    shown = [f"git log --oneline --first-parent HEAD..{branch}", f"git diff HEAD...{branch}"]
    return [*shown, f"git merge {branch}"] if report.merged else []


def markdown(text: str) -> str:
    """Return *text* so that nothing in it is markup: no link, no picture, no mention."""
    line = " ".join(escape_unsafe(text).split())
    return _SPECIAL.sub(r"\\\1", line).replace("@", "&#64;")


def report_markdown(report: RunReport) -> str:
    """Return *report* as Markdown."""
    view = report.view
    parts = [
        f"# {markdown(view.goal.description)}",
        f"{report.title}. {markdown(view.headline.says)}."
        + (f" Next: `{view.headline.command}`." if view.headline.command else ""),
        *_section("Questions for you", (f"{markdown(one.subject)}: {markdown(' '.join(one.asks))} "
                                        f"(`{one.command}`)" for one in view.questions)),
        *_section("Merged", _merged_lines(report.merged) if report.merged else ["nothing"]),
        *_commands(report),
        *_section("Not merged, and why", (
            f"**{markdown(one.task)}** ({one.status}): {markdown(one.why)}" for one in report.unmerged)),
        *_section("Cost", _cost_lines(report)),
        *_section("Reviews", review_lines(report)),
        *_section("Time by status", (
            f"{name}: {seconds_text(spent)}" for name, spent in report.history.seconds_by_status.items())),
        *_section("Anomalies and trips", (markdown(line) for line in trouble_lines(report))),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    more = [f"- and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    if found:
        yield f"## {title}"
        yield "\n".join([*(f"- {line}" for line in found[:SHOWN]), *more])


def _merged_lines(merged: Sequence[MergedTask]) -> Iterator[str]:
    for one in merged:
        how = f" (`git show {one.commit[:12]}`)" if one.commit else ""
        yield f"**{markdown(one.task)}**: {markdown(one.description)}{how}"


def _commands(report: RunReport) -> Iterator[str]:
    if found := takeover_commands(report):
        yield "```\n" + "\n".join(found) + "\n```"


def cost_sentence(report: RunReport) -> str:
    """Return what was spent, and where the budget counts more than the runs told."""
    cost, money = report.history.cost, report.view.money
    told = f"${cost.usd:.2f} for {cost.runs} runs, of a budget of ${money.cap_usd:.2f}"
    if not money.estimated:
        return told
    guess = f"${money.estimated:.2f} are estimated for runs that did not tell"
    return f"{told}; it counts ${money.usd:.2f}, since {guess}"


def _cost_lines(report: RunReport) -> Iterator[str]:
    yield cost_sentence(report)
    if report.history.cost_per_merge is not None:
        yield f"${report.history.cost_per_merge:.2f} a merged task, with its share of what came to nothing"
    lost = sum(one.usd for one in report.waste.values())
    causes = ", ".join(f"{name} ${one.usd:.2f}" for name, one in report.waste.items() if one.usd)
    if lost:
        yield f"${lost:.2f} came to nothing: {causes}"
    for name, one in list(report.history.costs["task"].items())[:10]:
        yield f"{markdown(name)}: ${one.usd:.2f} in {one.runs} runs"


def review_lines(report: RunReport) -> Iterator[str]:
    """Yield how far reviewers agree: with coders at first sight, and among themselves."""
    found = report.history.figures
    if found.first_pass_rate is not None:
        yield f"{found.first_pass_rate:.0%} of the work passed its first review"
    rates = {name: rate for name, rate in found.approval_rates.items() if rate is not None}
    yield from (f"{name} approved {rate:.0%} of what it saw" for name, rate in rates.items())
    if len(rates) > 1:
        spread = max(rates.values()) - min(rates.values())
        yield f"between the mildest and the strictest reviewer are {spread * 100:.0f} points"
    if found.rubber_stamps:
        yield f"approves nearly everything: {', '.join(found.rubber_stamps)}; check some of it by hand"
    if found.rejections:
        kinds = ", ".join(f"{count} {name}" for name, count in found.rejections.items())
        yield f"rejections by kind: {kinds}"


def trouble_lines(report: RunReport) -> Iterator[str]:
    """Yield what should not have happened."""
    for trip in report.trips:
        yield f"{trip.id}: {trip.says}; {trip.resolution or 'open'}"
    for one in report.anomalies:
        about = f" of {one.task}" if one.task else ""
        yield f"{one.id}: {one.type}{about} by {one.by}: {one.says}"
