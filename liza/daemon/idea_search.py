"""How a search over ideas goes on: the best that was tried is what the next ideas begin with."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from liza.board.location import HOME
from liza.daemon.idea_outcome import EXPERIMENTS, means_in, run_id_of
from liza.domain.beam_search import ROOT, IdeaSearch, MeasuredIdea, SearchSettings
from liza.domain.idea_report import RESULTS
from liza.domain.ideas import new_ideas
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.measurement import count_rows
from liza.errors import UsageError
from liza.gates.score import read_baseline, read_results_file

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.ideas import Idea
    from liza.domain.model import State, Task
    from liza.domain.scoring import ResultsFile


class DeeperIdea(NamedTuple):
    text: str
    node: str  # the idea that it begins with


class NextIdeas(NamedTuple):
    ideas: tuple[DeeperIdea, ...] = ()
    ended: str | None = None  # why there are none


def next_ideas(state: State, root: Path, ideas: tuple[Idea, ...]) -> NextIdeas:
    """Return the ideas of the next depth, each on the best of the last; or why the search is over."""
    tasks = [task for task in state.tasks.values() if task.id.startswith(f"idea-{state.goal.number}-")]
    search = _search_of(state, root, tasks)
    found = search.next_depth()
    fresh = new_ideas((one.text for one in ideas), (task.description for task in tasks))[: search.left()]
    if found.ended is not None or not fresh:
        return NextIdeas(ended=found.ended or "every idea was tried")
    nodes = [node for node in found.nodes for _ in range(search.settings.ideas)]
    return NextIdeas(tuple(DeeperIdea(text, node) for text, node in zip(fresh, nodes, strict=False)))


def _search_of(state: State, root: Path, tasks: list[Task]) -> IdeaSearch:
    settings = state.config.experiment
    baseline = read_baseline(root / str(settings.baseline))
    figures = means_in(settings, baseline)
    missing = [rule.column for rule in settings.metrics if rule.column not in figures]
    if missing:
        why = (
            f"{baseline.name} {baseline.why}"
            if baseline.data is None
            else f"it has no number in {missing[0]}"
        )
        raise UsageError(f"the search cannot go on without its baseline: {why}")
    rows = _count_rows(state, baseline)

    def tried(task: Task) -> MeasuredIdea:
        results = read_results_file(root / HOME / EXPERIMENTS / run_id_of(task) / RESULTS)
        is_good = task.status in SUCCEEDED and results.data is not None
        parent = task.depends_on[0] if task.depends_on else ROOT
        measured = means_in(settings, results) if is_good else None
        return MeasuredIdea(task.id, parent, measured, is_whole=_count_rows(state, results) >= rows)

    wanted = settings.search or SearchSettings()
    return IdeaSearch(wanted, settings.metrics, figures, [tried(task) for task in tasks])


def _count_rows(state: State, file: ResultsFile) -> int:
    return count_rows(str(state.config.experiment.results), file.data or b"")
