"""Measure the board beside its rivals, and the daemon against the ideal, in one run on one machine."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts are not installed

from scripts.benchmark import against, costs, daemon, hosts, pages, screens, speed
from scripts.benchmark.aims import aims_table
from scripts.benchmark.plan import DAEMON, FULL, QUICK, QUICK_DAEMON, DaemonPlan, Plan
from scripts.benchmark.rivals import ENGINES
from scripts.benchmark.tables import Table

ROOT = Path(__file__).resolve().parent.parent
PARTS = BOARD, DAEMON_PART, SCREEN, PAGE, HOSTS = "board", "daemon", "screen", "page", "hosts"


def main() -> None:
    options = _options()
    # Images of containers forbid bytecode: here every process would compile all of Liza anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # The processes that are started find the code as this one does.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    began = time.monotonic()
    tables: list[Table] = []
    print(machine())
    with TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as place:
        # What boards on a server keep on a machine; set before the first child, whose parent others share.
        os.environ["XDG_STATE_HOME"] = str(Path(place) / "state")
        for table in _found(options, Path(place)):
            print(f"\n{table.text()}", flush=True)
            tables.append(table)
    print(f"\nTook {time.monotonic() - began:.0f} s.")
    if options.json:
        found = {"machine": machine(), "tables": [table.to_json() for table in tables]}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def _found(options: argparse.Namespace, place: Path) -> Iterator[Table]:
    board, run = (QUICK, QUICK_DAEMON) if options.quick else (FULL, DAEMON)
    chosen = options.only or PARTS
    if options.against:
        quick = ["--quick"] if options.quick else []
        rows = [row for part in chosen for row in (daemon.ROWS if part == DAEMON_PART else (part,))]
        yield from against.tables(ROOT, options.against, rows, quick, options.rounds, place)
        return
    if rows := [row for row in daemon.ROWS if row in chosen]:
        yield from daemon.tables(run, place, rows)
    for part in PARTS:
        if part in chosen:
            yield from measure(part, board, run, place)


def measure(part: str, board: Plan, run: DaemonPlan, place: Path) -> Iterator[Table]:
    """Yield each table of *part* as soon as it is known."""
    if part == BOARD:
        return board_tables(board, place)
    if part == HOSTS:
        return hosts.tables(hosts.QUICK if board is QUICK else hosts.FULL, place)
    found = {DAEMON_PART: daemon.tables, SCREEN: screens.tables, PAGE: pages.tables}
    return found[part](run, place)


def board_tables(plan: Plan, place: Path) -> Iterator[Table]:
    for row in ENGINES.values():
        print(f"  {row.name:8} {row.missing() or row.says}")
    alone = speed.run_alone(plan, place)
    yield from speed.alone_tables(alone)
    crowded = speed.run_crowded(plan, place, alone)
    yield speed.crowded_table(crowded, plan.crowded)
    in_history = speed.run_in_history(plan, place)
    yield speed.history_table(in_history)
    for cost in (costs.bytes_table, costs.opening_table, costs.watch_table, costs.shell_table):
        yield cost(plan, place)
    yield aims_table(alone, crowded, in_history)


def machine() -> str:
    return (
        f"{os.cpu_count()} cores, {file_system(Path.cwd())}, Python {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {platform.system()} {platform.release()}"
    )


def file_system(path: Path) -> str:
    """Return the type of the file system that holds *path*, as far as the kernel tells."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown file system"
    places = (line.split()[1:3] for line in mounts.read_text().splitlines())
    holding = [(len(place), kind) for place, kind in places if path.is_relative_to(place)]
    kind = max(holding)[1]
    return f"{kind} (nothing is durable there: run from a directory on a disk)" if kind == "tmpfs" else kind


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small boards, short races and runs, about a minute"
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=(*PARTS, *daemon.ROWS),
        help="measure this part, or this row of the daemon's, alone; may be given again",
    )
    parser.add_argument(
        "--against",
        metavar="DIR|COMMIT",
        help="measure another checkout, or a commit of this one, in turn with this, and compare their aims",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="times that each is measured with --against (default: 1)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the tables to FILE as well")
    return parser.parse_args()


if __name__ == "__main__":
    main()
