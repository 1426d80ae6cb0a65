"""The proof gate: new tests fail without the work and pass with it, and the old ones still pass.

Three trees are tried, and no checkout of an agent's:
- the head, where every test file that the diff adds or changes must pass, and really run;
- the base with the head's tests, where each new one must fail. That it cannot even be loaded there, since
  what it tests does not exist yet, is a failure as good as any;
- the head with the base's tests and the base's settings of the runner, which must all pass. So a test that
  was deleted, weakened, skipped or patched away is asked all the same, unless the scope names its file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from liza.domain.record import Record
from liza.domain.verdicts import Feedback, Outcome
from liza.gates.artifact import changed_tests
from liza.gates.command import finding_of, named_places, require_end_on_base
from liza.gates.context import GateContext, TreeRun
from liza.gates.failures import failed_tests, finds_no_tests, summarize_tests
from liza.gates.finding import Finding, blocker, concern, has_blocker, most_important, passed, revise, unknown
from liza.gates.known_runners import is_manifest, is_runner_file, passed_count, runner_of, with_only_file
from liza.gates.languages import assertions, hollow_tests, is_for_tests, is_test, names_of_tests, skip_in
from liza.gates.runner import CUT_SHORT, describe_ending, evidence_of, outcome_of
from liza.gates.steering import has_new_runner_settings
from liza.repo.diff import DiffEntry
from liza.repo.objects import TreeItem, write_tree_with
from liza.system.run_control import RunEnding

MOST_SINGLE: Final = 8  # test files that are run one by one; more are run together


class ProofOptions(Record):
    named: Literal["exactly", "matching"] = "exactly"  # how the scope has to name a test that may change


def judge(options: ProofOptions, case: GateContext) -> Finding:
    """Try the tests of the diff on three trees, after a look at what became of the old ones."""
    if "no_code" in case.facts:
        return passed("no code is touched, so there is nothing to prove")
    flaws = [*_static_flaws(options, case)]
    if has_blocker(flaws):
        return revise("tests are weakened or prove nothing", most_important(flaws))
    line = case.config.gates.test
    if line is None:
        note = "not set up: there is no test command in the settings, so tests were only read"
        return passed(note, most_important(flaws), label="skipped")
    changed = [entry for entry in changed_tests(case) if is_test(entry.path)]
    if not changed and not changed_tests(case):
        return revise("no test proves the change", [blocker("add a test that fails without the change")])
    found = _run_proofs(options, case, line, changed)
    return found._replace(feedback=most_important([*found.feedback, *flaws]))


def _run_proofs(options: ProofOptions, case: GateContext, line: str, changed: list[DiffEntry]) -> Finding:
    for step in (_prove_on_head, _prove_on_base):
        found = step(case, line, changed) if changed else None
        if found is not None:
            return found
    return _run_old_tests_on_head(options, case, line, inline=not changed)


def _commands_for(line: str, entries: list[DiffEntry]) -> dict[str, list[str]]:
    """Return the commands that run *entries*, one by one where the runner can do that, with their files."""
    single = {entry.path: with_only_file(line, entry.path) for entry in entries}
    if len(entries) > MOST_SINGLE or not all(single.values()):
        return {line: [entry.path for entry in entries]}
    by_line: dict[str, list[str]] = {}
    for path, command in single.items():
        by_line.setdefault(str(command), []).append(path)
    return by_line


def _prove_on_head(case: GateContext, line: str, changed: list[DiffEntry]) -> Finding | None:
    for command, paths in _commands_for(line, changed).items():
        trial = case.run_on(case.tree, "proof-head", command)
        found = finding_of("the new tests on the head", trial)
        if found.outcome is not Outcome.PASS and not _is_known_red(case, line, trial):
            _require_fair(case, line, trial)
            return found
        if passed_count(command, trial.ran.said) == 0:
            reason = "the new tests do not run"
            note = "the runner found no test to run here, or skipped all of them"
            return revise(reason, [blocker(note, path) for path in paths], evidence_of(command, trial.ran))
    return None


def _prove_on_base(case: GateContext, line: str, changed: list[DiffEntry]) -> Finding | None:
    tree = write_tree_with(case.repository, case.base_tree, _tests_of_head(case))
    idle: list[DiffEntry] = []
    failing = None
    for command, paths in _commands_for(line, changed).items():
        trial = case.run_on(tree, "proof-base", command)
        if trial.is_setup:
            return unknown("the project's setup fails on the base, so nothing can be proven")
        if outcome_of(trial.ran) is Outcome.NONE:
            return finding_of("the new tests on the base", trial)
        if trial.ran.is_green or _is_known_red(case, line, trial):
            idle += [entry for entry in changed if entry.path in paths]
        else:
            failing = failing or trial
        if not trial.ran.is_green and command == line and _is_red_by_itself(case, line):
            return unknown(f"test ({line}) fails on the base already, so nothing can be proven")
    return _judge_idle(idle, failing)


def _judge_idle(idle: list[DiffEntry], failing: TreeRun | None) -> Finding | None:
    """A new test that passes without the work proves nothing; a changed one may, where others do fail."""
    guilty = [entry for entry in idle if entry.is_new or failing is None]
    if not guilty:
        return None
    note = "these tests pass on the base too, without the change, so they prove nothing; test what is new"
    return revise(
        "the new tests pass without the change",
        most_important([blocker(note, entry.path) for entry in guilty]),
    )


def _tests_of_head(case: GateContext) -> dict[str, TreeItem | None]:
    """Return what the head has on the side of its tests, with what they share and how they are run."""
    paths = {path for entry in case.diff for path in entry.paths}
    return {path: case.head_files.get(path) for path in paths if is_for_tests(path) or is_runner_file(path)}


def _run_old_tests_on_head(options: ProofOptions, case: GateContext, line: str, *, inline: bool) -> Finding:
    tree = write_tree_with(case.repository, case.tree, _tests_of_base(options, case))
    trial = case.run_on(tree, "proof-old", line)
    notes = (
        [concern("the tests are inside the files that they test, so the base was not tried")]
        if inline
        else []
    )
    outcome = outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return finding_of("the old tests on the head", trial)
    if outcome is Outcome.REVISE:
        return _judge_old_red(case, line, trial)
    if _ran_nothing(case, line, trial):
        note = "no old test ran on the head, although they do on the base; the code must not end the runner"
        return revise("the old tests do not run any more", [blocker(note)], evidence_of(line, trial.ran))
    proven = "the new tests fail on the base and pass on the head, and the old tests still pass"
    return passed(proven if not inline else "the old tests still pass", notes, evidence_of(line, trial.ran))


def _require_fair(case: GateContext, line: str, trial: TreeRun) -> None:
    """Raise where *trial*, of the whole *line*, took too long as it does without the work."""
    if trial.line == line and trial.ran.ending in CUT_SHORT:
        require_end_on_base("test", case, trial)


def _judge_old_red(case: GateContext, line: str, trial: TreeRun) -> Finding:
    _require_fair(case, line, trial)
    if finds_no_tests(trial.ran) and case.base_result("test", line).is_empty:
        return passed("the new tests are the first", (), evidence_of(line, trial.ran))
    if _is_known_red(case, line, trial):
        note = concern(
            f"these fail on the base already: {summarize_tests(case.base_result('test', line).known_red)}"
        )
        return passed("the new tests prove the change", [note], evidence_of(line, trial.ran))
    if trial.ran.ending is RunEnding.DONE and _is_red_by_itself(case, line):
        note = concern(f"test ({line}) fails on the base already, so the old tests say nothing")
        return passed(
            "the new tests prove the change; the old ones were red before",
            [note],
            evidence_of(line, trial.ran),
        )
    reason = "the tests of the base fail on the head"
    message = (
        f"with the tests and the runner's settings as they were, {line} {describe_ending(trial.ran)}; "
        "mend the code, or "
        "say that you are blocked: only a scope that names a test file allows to change what it asks for"
    )
    return revise(
        reason,
        most_important([blocker(message), *named_places(trial.ran.said)]),
        evidence_of(line, trial.ran),
    )


def _is_red_by_itself(case: GateContext, line: str) -> bool:
    """Return whether *line* is red on the base, and nobody can say which tests are."""
    before = case.base_result("test", line)
    return not before.is_usable and before.code not in (0, None)


def _is_known_red(case: GateContext, line: str, trial: TreeRun) -> bool:
    """Return whether all that failed in *trial*, of *line* or a part of it, fails on the base as well."""
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE or trial.ran.is_green:
        return False
    failed = failed_tests(trial.line, trial.ran.said)
    return failed is not None and failed <= case.base_result("test", line).known_red


def _ran_nothing(case: GateContext, line: str, trial: TreeRun) -> bool:
    """Compare with the base only where the output leaves a doubt: a whole suite takes its time."""
    if runner_of(line) is None or not any(is_test(path) for path in case.base_files):
        return False
    now = passed_count(line, trial.ran.said)
    if now:
        return False
    return bool(case.base_result("test", line).passed)


def _tests_of_base(options: ProofOptions, case: GateContext) -> dict[str, TreeItem | None]:
    """Return the base's tests and runner's settings, but for the files that the scope gives away."""
    wanted = {path for entry in case.diff for path in entry.paths if _is_restored_from_base(case, path)}
    return {
        path: case.base_files.get(path) for path in wanted if not _is_released_by_scope(options, case, path)
    }


def _is_restored_from_base(case: GateContext, path: str) -> bool:
    return (
        is_for_tests(path)
        or is_runner_file(path)
        or (is_manifest(path) and has_new_runner_settings(case, path))
    )


def _is_released_by_scope(options: ProofOptions, case: GateContext, path: str) -> bool:
    if options.named == "exactly":
        return case.bounds.names(path)
    return case.bounds.includes(path)


def _static_flaws(options: ProofOptions, case: GateContext) -> Iterator[Feedback]:
    """Yield what can be seen without running anything."""
    kept = {
        name for entry in case.diff if entry.is_there for name in _test_names(entry.path, case, entry.blob)
    }
    for entry in case.diff:
        given = all(_is_released_by_scope(options, case, path) for path in entry.paths)
        if entry.is_there and is_test(entry.path):
            yield from _skipped_tests(entry)
            yield from _hollow_findings(case, entry)
        if not given:
            yield from _removed_tests(case, entry, kept)


def _test_names(path: str, case: GateContext, blob: str) -> dict[str, int]:
    return names_of_tests(path, case.texts.get(blob, "")) if is_test(path) else {}


def _skipped_tests(entry: DiffEntry) -> Iterator[Feedback]:
    removed = [line.text.strip() for line in entry.removed]
    for line in entry.added:
        found = skip_in(entry.path, line.text)
        if found and line.text.strip() not in removed:
            yield blocker(f"{found!r} switches a test off; let it run", entry.path, line.number)


def _hollow_findings(case: GateContext, entry: DiffEntry) -> Iterator[Feedback]:
    added = {line.number for line in entry.added}
    before = {flaw.what for flaw in hollow_tests(entry.path, case.texts.get(entry.old_blob, ""))}
    for flaw in hollow_tests(entry.path, case.texts.get(entry.blob, "")):
        if added and flaw.what not in before:
            yield blocker(f"{flaw.what}, so it cannot fail; assert what has to hold", entry.path, flaw.line)


def _removed_tests(case: GateContext, entry: DiffEntry, kept: Iterable[str]) -> Iterator[Feedback]:
    path = entry.source or entry.path
    if not is_test(path):
        return
    before = _test_names(path, case, entry.old_blob)
    for name, line in before.items():
        if name not in kept:
            message = f"the test {name!r} (line {line} of the base) is gone; put it back"
            yield blocker(message, path)
    if not entry.is_there and not before:
        yield blocker("this test file is deleted; put it back", path)
    elif entry.is_there and not entry.is_binary:
        old, new = (assertions(path, case.texts.get(blob, "")) for blob in (entry.old_blob, entry.blob))
        if new < old:
            yield concern(f"it has fewer assertions than before ({new} instead of {old})", entry.path)
