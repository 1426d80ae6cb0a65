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

from liza.domain.model import Feedback, Outcome
from liza.domain.record import Record
from liza.gates.artifact import changed_tests
from liza.gates.command import finding_of, has_new_runner_settings, named_places, require_end_on_base
from liza.gates.context import (
    CUT_SHORT,
    Finding,
    GateContext,
    TreeRun,
    blocker,
    concern,
    covers_too_little,
    describe_ending,
    evidence_of,
    failed_tests,
    finds_no_tests,
    has_blocker,
    is_manifest,
    is_runner_file,
    let_pass,
    most_important,
    outcome_of,
    passed_count,
    revise,
    runner_of,
    summarize_tests,
    unknown,
    with_only_file,
)
from liza.gates.files import assertions, hollow_tests, is_for_tests, is_test, names_of_tests, skip_in
from liza.repo.repository import DiffEntry, TreeItem, write_tree_with
from liza.system.run_control import RunEnding

MOST_SINGLE: Final = 8  # test files that are run one by one; more are run together


class ProofOptions(Record):
    named: Literal["exactly", "matching"] = "exactly"  # how the scope has to name a test that may change


def judge(options: ProofOptions, context: GateContext) -> Finding:
    """Try the tests of the diff on three trees, after a look at what became of the old ones."""
    if "no_code" in context.facts:
        return let_pass("no code is touched, so there is nothing to prove")
    flaws = [*_static_flaws(options, context)]
    if has_blocker(flaws):
        return revise("tests are weakened or prove nothing", most_important(flaws))
    line = context.config.gates.test
    if line is None:
        note = "not set up: there is no test command in the settings, so tests were only read"
        return let_pass(note, most_important(flaws), label="skipped")
    changed = [entry for entry in changed_tests(context) if is_test(entry.path)]
    if not changed and not changed_tests(context):
        return revise("no test proves the change", [blocker("add a test that fails without the change")])
    found = _run_proofs(options, context, line, changed)
    return found._replace(feedback=most_important([*found.feedback, *flaws]))


def _run_proofs(options: ProofOptions, context: GateContext, line: str, changed: list[DiffEntry]) -> Finding:
    for step in (_prove_on_head, _prove_on_base):
        found = step(context, line, changed) if changed else None
        if found is not None:
            return found
    return _run_old_tests_on_head(options, context, line, inline=not changed)


def _commands_for(line: str, entries: list[DiffEntry]) -> dict[str, list[str]]:
    """Return the commands that run *entries*, one by one where the runner can do that, with their files."""
    single = {entry.path: with_only_file(line, entry.path) for entry in entries}
    if len(entries) > MOST_SINGLE or not all(single.values()):
        return {line: [entry.path for entry in entries]}
    by_line: dict[str, list[str]] = {}
    for path, command in single.items():
        by_line.setdefault(str(command), []).append(path)
    return by_line


def _run_part(context: GateContext, tree: str, name: str, command: str) -> TreeRun:
    """Run a part of the tests, or all without the new ones; that they cover too little is no failure."""
    trial = context.run_on(tree, name, command)
    if not covers_too_little(trial.ran) or not _is_reported_green(context, trial):
        return trial
    return trial._replace(ran=trial.ran._replace(code=0))


def _is_reported_green(context: GateContext, trial: TreeRun) -> bool:
    """Return whether no test failed by the runner's own report; what is printed, the work can print too."""
    if trial.report is not None:
        return not trial.report.failed
    before = context.results.of(context.base_tree, trial.line)
    return before is None or not before.is_reported


def _prove_on_head(context: GateContext, line: str, changed: list[DiffEntry]) -> Finding | None:
    for command, paths in _commands_for(line, changed).items():
        trial = _run_part(context, context.tree, "proof-head", command)
        found = finding_of("the new tests on the head", trial)
        if found.outcome is not Outcome.PASS and not _is_known_red(context, line, trial):
            _require_fair(context, line, trial)
            return found
        if passed_count(command, trial.ran.said) == 0:
            reason = "the new tests do not run"
            note = "the runner found no test to run here, or skipped all of them"
            return revise(reason, [blocker(note, path) for path in paths], evidence_of(command, trial.ran))
    return None


def _prove_on_base(context: GateContext, line: str, changed: list[DiffEntry]) -> Finding | None:
    tree = write_tree_with(context.repository, context.base_tree, _tests_of_head(context))
    idle: list[DiffEntry] = []
    failing = None
    for command, paths in _commands_for(line, changed).items():
        trial = _run_part(context, tree, "proof-base", command)
        if trial.is_setup:
            return unknown("the project's setup fails on the base, so nothing can be proven")
        if outcome_of(trial.ran) is Outcome.NONE:
            return finding_of("the new tests on the base", trial)
        if trial.ran.is_green or _is_known_red(context, line, trial):
            idle += [entry for entry in changed if entry.path in paths]
        else:
            failing = failing or trial
        if not trial.ran.is_green and command == line and _is_red_by_itself(context, line):
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


def _tests_of_head(context: GateContext) -> dict[str, TreeItem | None]:
    """Return what the head has on the side of its tests, with what they share and how they are run."""
    paths = {path for entry in context.diff for path in entry.paths}
    return {
        path: context.head_files.get(path) for path in paths if is_for_tests(path) or is_runner_file(path)
    }


def _run_old_tests_on_head(
    options: ProofOptions, context: GateContext, line: str, *, inline: bool
) -> Finding:
    tree = write_tree_with(context.repository, context.tree, _tests_of_base(options, context))
    trial = _run_part(context, tree, "proof-old", line)
    notes = (
        [concern("the tests are inside the files that they test, so the base was not tried")]
        if inline
        else []
    )
    outcome = outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return finding_of("the old tests on the head", trial)
    if outcome is Outcome.REVISE:
        return _judge_old_red(context, line, trial)
    if _ran_nothing(context, line, trial):
        note = "no old test ran on the head, although they do on the base; the code must not end the runner"
        return revise("the old tests do not run any more", [blocker(note)], evidence_of(line, trial.ran))
    proven = "the new tests fail on the base and pass on the head, and the old tests still pass"
    return let_pass(proven if not inline else "the old tests still pass", notes, evidence_of(line, trial.ran))


def _require_fair(context: GateContext, line: str, trial: TreeRun) -> None:
    """Raise where *trial*, of the whole *line*, took too long as it does without the work."""
    if trial.line == line and trial.ran.ending in CUT_SHORT:
        require_end_on_base("test", context, trial)


def _judge_old_red(context: GateContext, line: str, trial: TreeRun) -> Finding:
    _require_fair(context, line, trial)
    if finds_no_tests(trial.ran) and context.base_result("test", line).is_empty:
        return let_pass("the new tests are the first", (), evidence_of(line, trial.ran))
    if _is_known_red(context, line, trial):
        note = concern(
            f"these fail on the base already: {summarize_tests(context.base_result('test', line).known_red)}"
        )
        return let_pass("the new tests prove the change", [note], evidence_of(line, trial.ran))
    if trial.ran.ending is RunEnding.DONE and _is_red_by_itself(context, line):
        note = concern(f"test ({line}) fails on the base already, so the old tests say nothing")
        return let_pass(
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


def _is_red_by_itself(context: GateContext, line: str) -> bool:
    """Return whether *line* is red on the base, and nobody can say which tests are."""
    before = context.base_result("test", line)
    return not before.is_usable and before.code not in (0, None)


def _is_known_red(context: GateContext, line: str, trial: TreeRun) -> bool:
    """Return whether all that failed in *trial*, of *line* or a part of it, fails on the base as well."""
    if trial.is_setup or trial.ran.ending is not RunEnding.DONE or trial.ran.is_green:
        return False
    failed = failed_tests(trial.line, trial.ran.said)
    return failed is not None and failed <= context.base_result("test", line).known_red


def _ran_nothing(context: GateContext, line: str, trial: TreeRun) -> bool:
    """Compare with the base only where the output leaves a doubt: a whole suite takes its time."""
    if runner_of(line) is None or not any(is_test(path) for path in context.base_files):
        return False
    now = passed_count(line, trial.ran.said)
    if now:
        return False
    return bool(context.base_result("test", line).passed)


def _tests_of_base(options: ProofOptions, context: GateContext) -> dict[str, TreeItem | None]:
    """Return the base's tests and runner's settings, but for the files that the scope gives away."""
    wanted = {path for entry in context.diff for path in entry.paths if _is_restored_from_base(context, path)}
    return {
        path: context.base_files.get(path)
        for path in wanted
        if not _is_released_by_scope(options, context, path)
    }


def _is_restored_from_base(context: GateContext, path: str) -> bool:
    return (
        is_for_tests(path)
        or is_runner_file(path)
        or (is_manifest(path) and has_new_runner_settings(context, path))
    )


def _is_released_by_scope(options: ProofOptions, context: GateContext, path: str) -> bool:
    if options.named == "exactly":
        return context.bounds.names(path)
    return context.bounds.includes(path)


def _static_flaws(options: ProofOptions, context: GateContext) -> Iterator[Feedback]:
    """Yield what can be seen without running anything."""
    kept = {
        name
        for entry in context.diff
        if entry.is_there
        for name in _test_names(entry.path, context, entry.blob)
    }
    for entry in context.diff:
        given = all(_is_released_by_scope(options, context, path) for path in entry.paths)
        if entry.is_there and is_test(entry.path):
            yield from _skipped_tests(entry)
            yield from _hollow_findings(context, entry)
        if not given:
            yield from _removed_tests(context, entry, kept)


def _test_names(path: str, context: GateContext, blob: str) -> dict[str, int]:
    return names_of_tests(path, context.texts.get(blob, "")) if is_test(path) else {}


def _skipped_tests(entry: DiffEntry) -> Iterator[Feedback]:
    removed = [line.text.strip() for line in entry.removed]
    for line in entry.added:
        found = skip_in(entry.path, line.text)
        if found and line.text.strip() not in removed:
            yield blocker(f"{found!r} switches a test off; let it run", entry.path, line.number)


def _hollow_findings(context: GateContext, entry: DiffEntry) -> Iterator[Feedback]:
    added = {line.number for line in entry.added}
    before = {flaw.what for flaw in hollow_tests(entry.path, context.texts.get(entry.old_blob, ""))}
    for flaw in hollow_tests(entry.path, context.texts.get(entry.blob, "")):
        if added and flaw.what not in before:
            yield blocker(f"{flaw.what}, so it cannot fail; assert what has to hold", entry.path, flaw.line)


def _removed_tests(context: GateContext, entry: DiffEntry, kept: Iterable[str]) -> Iterator[Feedback]:
    path = entry.source or entry.path
    if not is_test(path):
        return
    before = _test_names(path, context, entry.old_blob)
    for name, line in before.items():
        if name not in kept:
            message = f"the test {name!r} (line {line} of the base) is gone; put it back"
            yield blocker(message, path)
    if not entry.is_there and not before:
        yield blocker("this test file is deleted; put it back", path)
    elif entry.is_there and not entry.is_binary:
        old, new = (assertions(path, context.texts.get(blob, "")) for blob in (entry.old_blob, entry.blob))
        if new < old:
            yield concern(f"it has fewer assertions than before ({new} instead of {old})", entry.path)
