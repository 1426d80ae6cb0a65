"""Experiments: the ideas that were tried, by score, and the baseline that they are held against."""

from __future__ import annotations

import json
from argparse import Namespace

from liza.cli.registry import AS_JSON, command, home_of


@command("experiment", "show the ideas that were tried, best score first, with the patch of each", AS_JSON)
def _experiment(args: Namespace) -> None:
    from liza.board.protocol import open_board
    from liza.cli.views.experiments import experiment_text, graded_ideas
    from liza.daemon.project import settings_around

    home = home_of(args)
    _require_ideas(args)
    ideas = graded_ideas(home, settings_around(args.directory).experiment)
    if args.json:
        print(json.dumps([idea.to_json() for idea in ideas]))
        return
    ended = open_board(home).read().goal.search_ended
    print("\n".join([experiment_text(home, ideas), *([f"It is over: {ended}."] if ended else [])]))


def _require_ideas(args: Namespace) -> None:
    """Refuse a board on which no idea is ever tried."""
    from liza.daemon.project import settings_around
    from liza.daemon.workflow_in_use import workflow_of
    from liza.errors import UsageError
    from liza.repo.command import top_level
    from liza.workflow.document import IDEA_SOURCE

    config = settings_around(args.directory)
    if workflow_of(config, top_level(args.directory)).tasks.source != IDEA_SOURCE:
        raise UsageError(f"the workflow {config.workflow} tries no ideas; `workflow: experiment` does")


@command("baseline refresh", "make the results in your checkout the baseline that ideas must beat", AS_JSON)
def _baseline_refresh(args: Namespace) -> None:
    from liza.daemon.experiment_files import refresh_baseline
    from liza.daemon.project import settings_around
    from liza.domain.ideas import ScoreColumn
    from liza.errors import UsageError
    from liza.repo.command import top_level

    root, settings = top_level(args.directory), settings_around(args.directory).experiment
    if settings.results is None or settings.baseline is None or settings.column is None:
        raise UsageError("there is no sweep to refresh from; set experiment.sweep and its parts in liza.yaml")
    column = ScoreColumn(column=settings.column, first_configurations=settings.configurations)
    mean = refresh_baseline(root / settings.results, root / settings.baseline, column)
    if args.json:
        print(json.dumps({"baseline": settings.baseline, "column": settings.column, "mean": mean}))
    else:
        print(f"{settings.baseline} is {settings.results} now; the mean of {settings.column} is {mean:g}.")
