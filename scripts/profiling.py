"""Print where the CPU of a run goes, by process and function, and which processes it starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts are not installed

from scripts.benchmark.task_cost import TASKS, cost_table, profile_tables, run_tasks

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    # Images of containers forbid bytecode: here every process would compile all of Liza anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with TemporaryDirectory(prefix=".profile-", dir=Path.cwd()) as place:
        plain = run_tasks(Path(place), TASKS)
        print(cost_table(plain).text())
        cost = run_tasks(Path(place), TASKS, profiles=True)
    if isinstance(cost, str):
        print(cost)
        return 1
    for table in profile_tables(cost):
        print(f"\n{table.text()}")
    print("\nThe last tables are of a second run, under the profiler: read shares, not seconds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
