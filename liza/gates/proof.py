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

from liza.agents.protocol import Ending
from liza.gates.artifact import tested
from liza.gates.case import Case, Trial
from liza.gates.command import ended, places, require_end_on_base
from liza.gates.failures import failed_tests, named
from liza.gates.finding import Finding, blocker, concern, first, has_blocker, passed, revise, unknown
from liza.gates.languages import assertions, hollow, is_test, is_test_side, names_in, skip_in
from liza.gates.runners import is_manifest, is_runner_file, passed_in, restricted, runner_of
from liza.gates.running import CUT_SHORT, evidence, how, outcome_of
from liza.gates.steering import is_steered
from liza.record import Record
from liza.repo.diff import Entry
from liza.repo.objects import Item, grafted
from liza.verdicts import Feedback, Outcome

MOST_SINGLE: Final = 8  # test files that are run one by one; more are run together


class Options(Record):
    named: Literal["exactly", "matching"] = "exactly"  # how the scope has to name a test that may change


def judge(options: Options, case: Case) -> Finding:
    """Try the tests of the diff on three trees, after a look at what became of the old ones."""
    if "no_code" in case.facts:
        return passed("no code is touched, so there is nothing to prove")
    flaws = [*_static(options, case)]
    if has_blocker(flaws):
        return revise("tests are weakened or prove nothing", first(flaws))
    line = case.config.gates.test
    if line is None:
        note = "not set up: there is no test command in the settings, so tests were only read"
        return passed(note, first(flaws), label="skipped")
    changed = [entry for entry in tested(case) if is_test(entry.path)]
    if not changed and not tested(case):
        return revise("no test proves the change", [blocker("add a test that fails without the change")])
    found = _tried(options, case, line, changed)
    return found._replace(feedback=first([*found.feedback, *flaws]))


def _tried(options: Options, case: Case, line: str, changed: list[Entry]) -> Finding:
    for step in (_on_head, _on_base):
        found = step(case, line, changed) if changed else None
        if found is not None:
            return found
    return _old_on_head(options, case, line, inline=not changed)


def _lines(line: str, entries: list[Entry]) -> dict[str, list[str]]:
    """Return the commands that run *entries*, one by one where the runner can do that, with their files."""
    single = {entry.path: restricted(line, entry.path) for entry in entries}
    if len(entries) > MOST_SINGLE or not all(single.values()):
        return {line: [entry.path for entry in entries]}
    by_line: dict[str, list[str]] = {}
    for path, command in single.items():
        by_line.setdefault(str(command), []).append(path)
    return by_line


def _on_head(case: Case, line: str, changed: list[Entry]) -> Finding | None:
    for command, paths in _lines(line, changed).items():
        trial = case.trial(case.tree, "proof-head", command)
        found = ended("the new tests on the head", trial)
        if found.outcome is not Outcome.PASS and not _is_known_red(case, line, trial):
            _require_fair(case, line, trial)
            return found
        if passed_in(command, trial.ran.said) == 0:
            reason = "the new tests do not run"
            note = "the runner found no test to run here, or skipped all of them"
            return revise(reason, [blocker(note, path) for path in paths], evidence(command, trial.ran))
    return None


def _on_base(case: Case, line: str, changed: list[Entry]) -> Finding | None:
    tree = grafted(case.repository, case.base_tree, _tests_of_head(case))
    idle: list[Entry] = []
    failing = None
    for command, paths in _lines(line, changed).items():
        trial = case.trial(tree, "proof-base", command)
        if trial.is_setup:
            return unknown("the project's setup fails on the base, so nothing can be proven")
        if outcome_of(trial.ran) is Outcome.NONE:
            return ended("the new tests on the base", trial)
        if trial.ran.is_green or _is_known_red(case, line, trial):
            idle += [entry for entry in changed if entry.path in paths]
        else:
            failing = failing or trial
        if not trial.ran.is_green and command == line and _is_red_by_itself(case, line):
            return unknown(f"test ({line}) fails on the base already, so nothing can be proven")
    return _idle(idle, failing)


def _idle(idle: list[Entry], failing: Trial | None) -> Finding | None:
    """A new test that passes without the work proves nothing; a changed one may, where others do fail."""
    guilty = [entry for entry in idle if entry.is_new or failing is None]
    if not guilty:
        return None
    note = "these tests pass on the base too, without the change, so they prove nothing; test what is new"
    return revise(
        "the new tests pass without the change", first([blocker(note, entry.path) for entry in guilty])
    )


def _tests_of_head(case: Case) -> dict[str, Item | None]:
    """Return what the head has on the side of its tests, with what they share and how they are run."""
    paths = {path for entry in case.diff for path in entry.paths}
    return {path: case.head_files.get(path) for path in paths if is_test_side(path) or is_runner_file(path)}


def _old_on_head(options: Options, case: Case, line: str, *, inline: bool) -> Finding:
    tree = grafted(case.repository, case.tree, _tests_of_base(options, case))
    trial = case.trial(tree, "proof-old", line)
    notes = (
        [concern("the tests are inside the files that they test, so the base was not tried")]
        if inline
        else []
    )
    outcome = outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return ended("the old tests on the head", trial)
    if outcome is Outcome.REVISE:
        return _old_red(case, line, trial)
    if _ran_nothing(case, line, trial):
        note = "no old test ran on the head, although they do on the base; the code must not end the runner"
        return revise("the old tests do not run any more", [blocker(note)], evidence(line, trial.ran))
    proven = "the new tests fail on the base and pass on the head, and the old tests still pass"
    return passed(proven if not inline else "the old tests still pass", notes, evidence(line, trial.ran))


def _require_fair(case: Case, line: str, trial: Trial) -> None:
    """Raise where *trial*, of the whole *line*, took too long as it does without the work."""
    if trial.line == line and trial.ran.ending in CUT_SHORT:
        require_end_on_base("test", case, trial)


def _old_red(case: Case, line: str, trial: Trial) -> Finding:
    _require_fair(case, line, trial)
    if _is_known_red(case, line, trial):
        note = concern(f"these fail on the base already: {named(case.on_base('test', line).known_red)}")
        return passed("the new tests prove the change", [note], evidence(line, trial.ran))
    if trial.ran.ending is Ending.DONE and _is_red_by_itself(case, line):
        note = concern(f"test ({line}) fails on the base already, so the old tests say nothing")
        return passed(
            "the new tests prove the change; the old ones were red before", [note], evidence(line, trial.ran)
        )
    reason = "the tests of the base fail on the head"
    message = (
        f"with the tests and the runner's settings as they were, {line} {how(trial.ran)}; mend the code, or "
        "say that you are blocked: only a scope that names a test file allows to change what it asks for"
    )
    return revise(reason, first([blocker(message), *places(trial.ran.said)]), evidence(line, trial.ran))


def _is_red_by_itself(case: Case, line: str) -> bool:
    """Return whether *line* is red on the base, and nobody can say which tests are."""
    before = case.on_base("test", line)
    return not before.is_usable and before.code not in (0, None)


def _is_known_red(case: Case, line: str, trial: Trial) -> bool:
    """Return whether all that failed in *trial*, of *line* or a part of it, fails on the base as well."""
    if trial.is_setup or trial.ran.ending is not Ending.DONE or trial.ran.is_green:
        return False
    failed = failed_tests(trial.line, trial.ran.said)
    return failed is not None and failed <= case.on_base("test", line).known_red


def _ran_nothing(case: Case, line: str, trial: Trial) -> bool:
    """Compare with the base only where the output leaves a doubt: a whole suite takes its time."""
    if runner_of(line) is None or not any(is_test(path) for path in case.base_files):
        return False
    now = passed_in(line, trial.ran.said)
    if now:
        return False
    return bool(case.on_base("test", line).passed)


def _tests_of_base(options: Options, case: Case) -> dict[str, Item | None]:
    """Return the base's tests and runner's settings, but for the files that the scope gives away."""
    wanted = {path for entry in case.diff for path in entry.paths if _is_kept(case, path)}
    return {path: case.base_files.get(path) for path in wanted if not _is_given(options, case, path)}


def _is_kept(case: Case, path: str) -> bool:
    return is_test_side(path) or is_runner_file(path) or (is_manifest(path) and is_steered(case, path))


def _is_given(options: Options, case: Case, path: str) -> bool:
    if options.named == "exactly":
        return case.bounds.names(path)
    return case.bounds.includes(path)


def _static(options: Options, case: Case) -> Iterator[Feedback]:
    """Yield what can be seen without running anything."""
    kept = {name for entry in case.diff if entry.is_there for name in _names(entry.path, case, entry.blob)}
    for entry in case.diff:
        given = all(_is_given(options, case, path) for path in entry.paths)
        if entry.is_there and is_test(entry.path):
            yield from _switched_off(entry)
            yield from _hollow(case, entry)
        if not given:
            yield from _lost(case, entry, kept)


def _names(path: str, case: Case, blob: str) -> dict[str, int]:
    return names_in(path, case.texts.get(blob, "")) if is_test(path) else {}


def _switched_off(entry: Entry) -> Iterator[Feedback]:
    removed = [line.text.strip() for line in entry.removed]
    for line in entry.added:
        found = skip_in(entry.path, line.text)
        if found and line.text.strip() not in removed:
            yield blocker(f"{found!r} switches a test off; let it run", entry.path, line.number)


def _hollow(case: Case, entry: Entry) -> Iterator[Feedback]:
    added = {line.number for line in entry.added}
    before = {flaw.what for flaw in hollow(entry.path, case.texts.get(entry.old_blob, ""))}
    for flaw in hollow(entry.path, case.texts.get(entry.blob, "")):
        if added and flaw.what not in before:
            yield blocker(f"{flaw.what}, so it cannot fail; assert what has to hold", entry.path, flaw.line)


def _lost(case: Case, entry: Entry, kept: Iterable[str]) -> Iterator[Feedback]:
    path = entry.source or entry.path
    if not is_test(path):
        return
    before = _names(path, case, entry.old_blob)
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
