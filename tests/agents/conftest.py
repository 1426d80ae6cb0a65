"""The table at the end: which real programs took a task all the way, at which price, in how many calls."""

from __future__ import annotations

from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Final

import pytest

from liza.agents.protocol import load_recording
from tests.agents.programs import table
from tests.agents.real import BEHIND

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.agents.real import Project, Run

ROW: Final = "real program"
HEAD: Final = ("program", "version", "task", "tokens in", "out", "USD", "as", "calls seen", "seconds")


def version_of(program: str) -> str:
    """Return what the table pins, or the library where Liza itself is the program."""
    row = table().get(BEHIND.get(program, program))
    if row is None:
        return version(program)
    return (row.npm or row.pip)[0].rpartition("@")[2].rpartition("=")[2]


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str, Project, Run], None]:
    """Give what puts a line into the table; it reaches the table also from another process."""

    def line(program: str, project: Project, run: Run) -> None:
        used = [one.usage for one in load_recording(project.root / ".liza" / "runs").runs]
        task = next(iter(run.state.tasks.values()))
        record_property(
            ROW,
            (
                *(program, version_of(program.partition(",")[0]), f"{task.id} {task.status}"),
                *(
                    f"{sum(one.tokens_in or 0 for one in used)}",
                    f"{sum(one.tokens_out or 0 for one in used)}",
                ),
                f"{sum(one.usd or 0 for one in used):.4f}",
                "/".join(sorted({str(one.provenance) for one in used})),
                ", ".join(_counted(run)),
                f"{run.seconds:.0f}",
            ),
        )

    return line


def _counted(run: Run) -> list[str]:
    kinds = sorted({(call.wire, call.streamed) for call in run.calls})
    return [
        f"{sum((call.wire, call.streamed) == kind for call in run.calls)} {kind[0]}{' streamed' * kind[1]}"
        for kind in kinds
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # Of all that is counted there, such as collectors and warnings, only tests have properties and a phase.
    everything = chain.from_iterable(terminalreporter.stats.values())
    reports = [one for one in everything if isinstance(one, pytest.TestReport) and one.when == "call"]
    found = [value for one in reports for name, value in one.user_properties if name == ROW]
    rows = [tuple(map(str, value)) for value in found if isinstance(value, tuple | list)]
    if not rows:
        return
    lines = [HEAD, *rows]
    widths = [max(len(str(line[column])) for line in lines) for column in range(len(HEAD))]
    terminalreporter.section("real programs")
    for line in lines:
        terminalreporter.write_line(
            "  ".join(str(cell).ljust(width) for cell, width in zip(line, widths, strict=True))
        )
