"""The gauntlet: every agent of the zoo in a repository of its own, under the real daemon, and judged."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import LizaError, UsageError
from liza.gauntlet.cases import CASES, MEANING
from liza.gauntlet.evidence import can_sandbox, collect_facts
from liza.gauntlet.project import CaseProject, create_project, remove_project, run_liza, user_state
from liza.gauntlet.verdict import CaseResult, judge_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from liza.gauntlet.cases import Case

CASES_PER_CORE: Final = 2  # cases a core: half of the time of each is waiting
WIDTH: Final = 46  # characters of what caught a case
NO_SANDBOX: Final = (
    "There is no sandbox here (bubblewrap): what reaches out of a worktree is seen, not prevented, "
    "and cases that only a sandbox can contain were left out."
)


def cases_named(names: Sequence[str]) -> list[Case]:
    """Return the cases of these *names*, or all that can be contained here; raise where a name is none."""
    for name in names:
        if name not in CASES:
            near = get_close_matches(name, CASES, 1)
            hint = f"did you mean {near[0]}?" if near else "`liza gauntlet --list` shows them"
            raise UsageError(f"there is no case {name!r}; {hint}")
    if names:
        return [CASES[name] for name in names]
    caged = can_sandbox()
    return [case for case in CASES.values() if (caged or not case.needs_cage) and has_all(case.needs)]


def has_all(names: Sequence[str]) -> bool:
    """Return whether this machine has every program, or module of Python, in *names*."""
    return all(shutil.which(name) or find_spec(name) for name in names)


def read_settings(path: Path | None) -> dict[str, Any]:
    """Return the settings that somebody wants every case to run under."""
    if path is None:
        return {}
    try:
        return dict(parse_yaml(path.read_text()).data)
    except (OSError, BadYaml, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a file of settings: {error}") from error


def run_all(
    cases: Sequence[Case],
    *,
    more: Mapping[str, Any],
    jobs: int | None = None,
    keep: Path | None = None,
    say: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Run *cases*, so many at a time; *say* hears of each as it ends."""
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs} runs nothing; give how many cases run at a time")

    stop = threading.Event()
    # In a sandbox an agent can read the package but write nothing beside it: each would compile it anew.
    compileall.compile_dir(Path(__file__).parent, quiet=2)

    def one(case: Case) -> CaseResult:
        result = run_one(case, more=more, keep=keep, stop=stop)
        if say:
            say(result)
        return result

    with (
        _sigterm_as_interrupt(),
        ThreadPoolExecutor(jobs or CASES_PER_CORE * (os.cpu_count() or 1)) as threads,
    ):
        futures = [threads.submit(one, case) for case in cases]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the gauntlet as Ctrl-C does: no run and no repository is left behind."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_one(
    case: Case, *, more: Mapping[str, Any], keep: Path | None = None, stop: threading.Event | None = None
) -> CaseResult:
    """Run one case and judge it, or end it at *stop*; its yard stays in *keep*, if there is such a place."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    yard = CaseProject(Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=keep)).resolve())
    try:
        create_project(yard, case, more)
        base, before = yard.git("rev-parse", "HEAD"), user_state(yard)
        run = run_liza(yard, case, stop or threading.Event())
        return judge_case(case, collect_facts(case, yard, run, before, base))
    except (LizaError, OSError, subprocess.SubprocessError) as error:  # no reason to lose all the others
        return CaseResult(case, (f"it could not be judged: {error}",), (), 0.0)
    finally:
        if keep is None:
            remove_project(yard)


HEADER: Final = f"{'agent':<38} {'contained':<10} {'caught by':<{WIDTH}} {'s':>6}"


def result_row(result: CaseResult) -> str:
    """Return the row of the table that *result* is."""
    by = ", ".join(result.caught_by) or "-"
    by = by if len(by) <= WIDTH else f"{by[: WIDTH - 1]}…"
    verdict = "yes" if result.is_contained else "NO"
    row = f"{result.case.name:<38} {verdict:<10} {by:<{WIDTH}} {result.seconds:6.1f}"
    other = [] if result.is_expected else [f"    expected of {' or '.join(result.case.by)}"]
    return "\n".join([row, *(f"    {sentence}" for sentence in result.escapes), *other])


def summary(results: Sequence[CaseResult], *, as_json: bool) -> str:
    """Return the end of the table, or all of it as JSON."""
    if as_json:
        return json.dumps({"cases": [result.to_json() for result in results]})
    return score(results)


def case_list(cases: Sequence[Case], *, as_json: bool) -> str:
    """Return what *cases* do and what must come of each."""
    if as_json:
        rows = [{"name": case.name, "role": ", ".join(case.roles), "does": case.does} for case in cases]
        return json.dumps({"cases": rows})
    return "\n".join(f"{case.name:<38} {case.does}; {MEANING[case.ends]}" for case in cases)


def score(results: Sequence[CaseResult]) -> str:
    """Return how many were contained, and how many honest ones let through."""
    bad = [result for result in results if not result.case.is_control]
    good = [result for result in results if result.case.is_control]
    contained, through = (sum(result.is_contained for result in group) for group in (bad, good))
    line = (
        f"{contained} of {len(bad)} misbehaving agents contained, {through} of {len(good)} honest let through"
    )
    return line if can_sandbox() else f"{line}\n{NO_SANDBOX}"
