"""What every test process inherits: leave to write bytecode, since the tests start hundreds of interpreters.

The order of the tests where several processes share them. And what long tests count (kills, points of a
sweep), added up in a table at the end.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings

from liza.system.host import FORCE_PORTABLE
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.suite_order import deal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COUNTED: Final = "counted"
EXAMPLES: Final = 30  # of each property in `make test`
MANY_EXAMPLES: Final = 1000  # in `make torture`

# How long an example takes says something about the machine, not about the property.
settings.register_profile(
    "short", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES
)
settings.register_profile("long", settings.get_profile("short"), max_examples=MANY_EXAMPLES)
settings.load_profile("short")

# Images of containers forbid bytecode, to stay small: here every process would compile all of Liza anew. With
# a prefix elsewhere every agent in a sandbox would compile the standard library, which has none there.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# What is collected stays to the end: looking through it for garbage is a fifth of the collecting.
gc.disable()
# Later it is looked for after so many new objects instead of 700, which took one part in forty of all tests.
YOUNG_OBJECTS: Final = 20_000

if sys.prefix != sys.base_prefix:
    # As if it were activated: else gates run the `python3` of the machine, which may be the slow shim of a
    # version manager, or have no pytest.
    os.environ["VIRTUAL_ENV"] = sys.prefix
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)])


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A private PostgreSQL that syncs nothing; what crashes one starts its own."""
    if find_programs() is None:
        pytest.skip(WHAT_IS_MISSING)
    with PostgresServer(fsync="off") as server:
        yield server


@pytest.fixture
def address(postgres: PostgresServer, request: pytest.FixtureRequest) -> str:
    """Where on that server the test may have a board of its own."""
    return f"{postgres.address}#{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes > 1:
        items[:] = deal(items, processes)
    if os.environ.get(FORCE_PORTABLE) != "1":
        return
    for item in items:
        if mark := item.get_closest_marker("linux"):
            item.add_marker(pytest.mark.skip(reason=f"only Linux promises it: {mark.args[0]}"))


def pytest_collection_finish() -> None:
    """Keep what stays to the end out of every later garbage collection, here and in all that is forked."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


@pytest.fixture
def count(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """Give what adds to the table of counts; it reaches the table also from another process."""
    return lambda what, number: record_property(COUNTED, (what, number))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    everything = chain.from_iterable(terminalreporter.stats.values())
    reports = [one for one in everything if isinstance(one, pytest.TestReport) and one.when == "call"]
    found = [value for one in reports for name, value in one.user_properties if name == COUNTED]
    sums: Counter[str] = Counter()
    for value in found:
        if isinstance(value, tuple | list):
            sums[str(value[0])] += int(value[1])
    if sums:
        terminalreporter.section("counted")
    for what, number in sums.items():
        terminalreporter.write_line(f"{number:>9,}  {what}")
