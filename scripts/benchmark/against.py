"""The same benchmark on two versions of the code, in turn, so that both meet the same machine."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from scripts.benchmark.speed import progress
from scripts.benchmark.tables import Table

CODE: Final = "liza"  # the package that is measured
SCRIPTS: Final = "scripts"
BENCH: Final = "scripts/bench.py"
AIM, MEASURED = "aim", "measured"

Measured = dict[str, list[float]]  # by the sentence of an aim


def tables(
    root: Path, other: str, rows: Sequence[str], options: Sequence[str], rounds: int, place: Path
) -> Iterator[Table]:
    """Yield one table for each of *rows*: the aims, measured on *other* and on the code in *root*."""
    stages = {"before": place / "before", "now": place / "now"}
    lay_out(stages["before"], root, other)
    lay_out(stages["now"], root, str(root))
    for row in rows:
        found: dict[str, Measured] = {name: {} for name in stages}
        aims: dict[str, dict[str, Any]] = {}
        table = Table(f"{row}, against {other}", (AIM, "before", "now", "verdict now", "the machine itself"))
        for number in range(rounds):
            for name, stage in stages.items():
                progress(f"{row}, {name}, round {number + 1} of {rounds}")
                told = _measure(stage, row, options)
                if isinstance(told, str):
                    table.notes.append(f"{name}: {told}")
                    continue
                for aim in told:
                    aims[aim[AIM]] = aim
                    if aim[MEASURED] is not None:
                        found[name].setdefault(aim[AIM], []).append(aim[MEASURED])
        for says, aim in aims.items():
            both = [median(found[name][says]) if says in found[name] else None for name in stages]
            table.add(says, *both, aim["verdict"], aim.get("the machine itself", ""))
        yield table


def lay_out(stage: Path, root: Path, which: str) -> None:
    """Put the package of *which*, a checkout or a commit, beside the scripts of *root*."""
    stage.mkdir()
    shutil.copytree(root / SCRIPTS, stage / SCRIPTS)
    if (package := Path(which) / CODE).is_dir():
        shutil.copytree(package, stage / CODE)
        return
    words = ["git", "-C", str(root), "archive", which, CODE]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode:
        sys.exit(f"{which} is neither a checkout nor a commit: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as found:
        found.extractall(stage, filter="data")


def _measure(stage: Path, row: str, options: Sequence[str]) -> list[dict[str, Any]] | str:
    """Return the aims of *row* as the code in *stage* meets them, or why it could not be measured."""
    told = stage / "told.json"
    words = [sys.executable, BENCH, "--only", row, *options, "--json", str(told)]
    ended = subprocess.run(words, cwd=stage, capture_output=True, text=True, check=False)
    if ended.returncode:
        return (ended.stderr.strip() or "failed without a word").splitlines()[-1]
    found = json.loads(told.read_text())["tables"]
    return [aim for table in found for aim in table["rows"] if AIM in aim and MEASURED in aim]
