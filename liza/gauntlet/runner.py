"""The gauntlet: every case in a repository of its own, under the real daemon, and judged."""

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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain.config import SandboxMode
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import LizaError, UsageError
from liza.gauntlet.cases import CASES, DEFAULT_WORKFLOW, MEANING
from liza.gauntlet.evidence import collect_facts
from liza.gauntlet.project import CaseProject, create_project, remove_project, run_liza, user_state
from liza.gauntlet.verdict import CaseResult, judge_case
from liza.gauntlet.workflows import in_workflow, require_workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from liza.gauntlet.cases import Case

CASES_PER_CORE: Final = 2  # cases a core: half of the time of each is waiting
WIDTH: Final = 46  # characters of what caught a case
NO_SANDBOX: Final = "Without a sandbox what reaches out of a worktree is seen, not prevented."
WITHOUT_SANDBOX: Final[Mapping[str, Any]] = {"sandbox": {"mode": SandboxMode.OFF.value}}


class CaseSelection(NamedTuple):
    """The cases to run, and why others are left out."""

    cases: list[Case]
    left_out: dict[str, str]
    is_sandboxed: bool


def select(names: Sequence[str], *, is_sandboxed: bool, workflow: str = DEFAULT_WORKFLOW) -> CaseSelection:
    """Return the cases of these *names*, or all that make sense under *workflow*.

    Raise where a name is none, or its case cannot be tried.
    """
    require_workflow(workflow)
    for name in names:
        if name not in CASES:
            near = get_close_matches(name, CASES, 1)
            hint = f"did you mean {near[0]}?" if near else "`liza gauntlet --list` shows them"
            raise UsageError(f"there is no case {name!r}; {hint}")
        if workflow not in CASES[name].workflows:
            raise UsageError(f"{name} makes no sense under the workflow {workflow}; leave one of them out")
    wanted = [CASES[name] for name in names or CASES if workflow in CASES[name].workflows]
    cases = [in_workflow(case, workflow) for case in wanted]
    left_out = {case.name: why for case in cases if (why := hindrance(case, is_sandboxed=is_sandboxed))}
    for name in names:
        if name in left_out:
            raise UsageError(f"{name} cannot be tried here: {left_out[name]}")
    return CaseSelection([case for case in cases if case.name not in left_out], left_out, is_sandboxed)


def hindrance(case: Case, *, is_sandboxed: bool) -> str:
    """Return why *case* shows nothing here; nothing where it does."""
    if case.needs_sandbox and not is_sandboxed:
        return f"without a sandbox {case.needs_sandbox}"
    missing = [name for name in case.needs if not is_installed(name)]
    return f"there is no {' and no '.join(missing)}" if missing else ""


def is_installed(name: str) -> bool:
    """Return whether this machine has the program, or module of Python, *name*."""
    return bool(shutil.which(name) or find_spec(name))


def read_settings(path: Path | None) -> dict[str, Any]:
    """Return the settings that somebody wants every case to run under."""
    if path is None:
        return {}
    try:
        return dict(parse_yaml(path.read_text()).data)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; name a file of settings") from error
    except (BadYaml, UnicodeDecodeError) as error:
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
        if say and not stop.is_set():  # whose run we ended ourselves has not escaped
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
    """Run one case and judge it, or end it at *stop*; its project stays in *keep*, if given."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    project = CaseProject(Path(tempfile.mkdtemp(prefix=f"{case.name}-", dir=keep)).resolve())
    try:
        create_project(project, case, more)
        base, before = project.git("rev-parse", "HEAD"), user_state(project)
        run = run_liza(project, case, stop or threading.Event())
        return judge_case(case, collect_facts(case, project, run, before, base))
    except (LizaError, OSError, subprocess.SubprocessError) as error:  # no reason to lose all the others
        return CaseResult(case, (f"it could not be judged: {error}",), (), 0.0)
    finally:
        if keep is None:
            remove_project(project)


HEADER: Final = f"{'agent':<38} {'contained':<10} {'caught by':<{WIDTH}} {'s':>6}"


def result_row(result: CaseResult) -> str:
    """Return the row of the table that *result* is."""
    by = ", ".join(result.caught_by) or "-"
    by = by if len(by) <= WIDTH else f"{by[: WIDTH - 1]}…"
    verdict = "yes" if result.is_contained else "NO"
    row = f"{result.case.name:<38} {verdict:<10} {by:<{WIDTH}} {result.seconds:6.1f}"
    other = [] if result.is_expected else [f"    expected of {' or '.join(result.case.by)}"]
    return "\n".join([row, *(f"    {sentence}" for sentence in result.escapes), *other])


def summary(results: Sequence[CaseResult], selection: CaseSelection, *, as_json: bool) -> str:
    """Return the end of the table, or all of it as JSON."""
    if not as_json:
        return "\n".join([score(results), *_caveats(selection)])
    cases = [result.to_json() for result in results]
    return json.dumps({"cases": cases, "sandboxed": selection.is_sandboxed, "left_out": selection.left_out})


def case_list(selection: CaseSelection, *, as_json: bool) -> str:
    """Return what the cases of *selection* do and what must come of each."""
    cases = selection.cases
    if as_json:
        rows = [{"name": case.name, "role": ", ".join(case.roles), "does": case.does} for case in cases]
        return json.dumps({"cases": rows, "left_out": selection.left_out})
    rows_of_cases = [f"{case.name:<38} {case.does}; {MEANING[case.ends]}" for case in cases]
    return "\n".join([*rows_of_cases, *_caveats(selection)])


def _caveats(selection: CaseSelection) -> Iterator[str]:
    """Yield what the score does not say: that there is no sandbox, and who is left out and why."""
    if not selection.is_sandboxed:
        yield NO_SANDBOX
    if selection.left_out:
        yield f"Left out are {len(selection.left_out)}:"
        yield from (f"    {name:<34} {why}" for name, why in selection.left_out.items())


def score(results: Sequence[CaseResult]) -> str:
    """Return how many were contained, and how many honest ones let through."""
    bad = [result for result in results if not result.case.is_control]
    good = [result for result in results if result.case.is_control]
    contained, through = (sum(result.is_contained for result in group) for group in (bad, good))
    return (
        f"{contained} of {len(bad)} misbehaving agents contained, {through} of {len(good)} honest let through"
    )
