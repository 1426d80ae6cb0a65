"""The proof gate on a small project with real runs of pytest: honest work passes, every trick is caught."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from liza.domain.model import Outcome, Verdict
from liza.errors import BrokenGate
from tests.support.few import few
from tests.support.gate_cases import PYTEST, GateCase, blamed, scope, told

CALC: Final = "def add(a, b):\n    return a + b\n"
OLD_TEST: Final = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
BASE: Final = {"calc.py": CALC, "tests/test_calc.py": OLD_TEST, "conftest.py": "", "pytest.ini": "[pytest]\n"}
BETTER: Final = CALC + "\n\ndef double(a):\n    return 2 * a\n"
NEW_TEST: Final = "from calc import double\n\n\ndef test_double():\n    assert double(2) == 4\n"
WORK: Final = {"calc.py": BETTER, "tests/test_double.py": NEW_TEST}
# What pytest-cov does with `--cov-fail-under`, by how many tests run.
COVERED: Final = """
LEAST = %d


def pytest_terminal_summary(terminalreporter):
    if terminalreporter._numcollected < LEAST:
        terminalreporter.write_line("ERROR: Coverage failure: total of 29 is less than fail-under=40")


def pytest_sessionfinish(session):
    if session.testscollected < LEAST and not session.testsfailed:
        session.exitstatus = 1
"""
BROKEN: Final = BETTER.replace("a + b", "a - b")
TRICKS: Final[dict[str, dict[str, str | None]]] = {
    "weaker": {"tests/test_calc.py": OLD_TEST.replace("== 3", "in (3, -1)")},
    "ignored": {"conftest.py": "collect_ignore = ['tests/test_calc.py']\n"},
    "patched": {"conftest.py": "import calc\n\ncalc.add = lambda a, b: 3\n"},
    "deselected": {"pytest.ini": "[pytest]\naddopts = --deselect tests/test_calc.py::test_add\n"},
    "manifest": {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--ignore=tests/test_calc.py"\n',
        "pytest.ini": None,
    },
    "sitecustomize": {"sitecustomize.py": "import os, sys\n"},
    "shadowed": {"pytest.py": "print('3 passed')\n"},
}


@pytest.fixture
def desk(tmp_path: Path) -> GateCase:
    desk = GateCase(tmp_path)
    desk.begin(BASE)
    return desk


def judged(desk: GateCase, files: Mapping[str, str | None], *include: str) -> Verdict:
    desk.commit(files)
    return desk.judged("proof", gates={"test": PYTEST}, scope=scope(*include))


class TestHonestWork:
    def test_a_new_test_for_new_code_passes(self, desk: GateCase) -> None:
        """On the base it cannot even be imported, which is a failure as good as any."""
        verdict = judged(desk, WORK)

        assert (verdict.outcome, verdict.feedback) == (Outcome.PASS, ())
        assert [name for name, _ in desk.ran] == ["proof-head", "proof-base", "proof-old"]
        assert " tests/test_double.py " in desk.ran[0][1]

    @pytest.mark.torture
    def test_a_project_that_asks_for_colours_is_read_as_well(self, desk: GateCase) -> None:
        """Issue: 1m691 passed, behind the sequence for bold, was read as no test at all."""
        desk.begin({"pytest.ini": "[pytest]\naddopts = --color=yes\n"})

        assert judged(desk, WORK).outcome is Outcome.PASS

    @pytest.mark.parametrize("least", [2, 5], ids=["new tests alone", "old tests alone"])
    def test_a_threshold_of_coverage_says_nothing_about_a_part_of_the_tests(
        self, desk: GateCase, least: int
    ) -> None:
        """Pytest-cov ends with 1 where only the new tests run, or the new code without them."""
        desk.begin({"conftest.py": COVERED % least})

        assert judged(desk, WORK).outcome is Outcome.PASS

    def test_nor_does_it_stand_for_a_new_test_that_fails_on_the_base(self, desk: GateCase) -> None:
        """Else a test that proves nothing would be red there, by its coverage."""
        desk.begin({"conftest.py": COVERED % 2})
        idle = NEW_TEST.replace("double", "add").replace("add(2)", "add(2, 2)")

        verdict = judged(desk, {"calc.py": BETTER, "tests/test_idle.py": idle})

        assert verdict.reason == "the new tests pass without the change"

    def test_a_test_added_to_an_old_file_passes(self, desk: GateCase) -> None:
        """The file as a whole fails on the base."""
        text = (
            OLD_TEST.replace("import add", "import add, double")
            + "\n\ndef test_double():\n    assert double(2) == 4\n"
        )

        assert judged(desk, {"calc.py": BETTER, "tests/test_calc.py": text}).outcome is Outcome.PASS

    def test_a_change_of_what_is_asked_passes_where_the_scope_names_the_test(self, desk: GateCase) -> None:
        """A person or a planner gave that test away; a directory around it would not do."""
        work: dict[str, str | None] = {
            "calc.py": CALC.replace("a + b", "a + b + 1"),
            "tests/test_calc.py": OLD_TEST.replace("== 3", "== 4"),
        }

        assert judged(desk, work, "calc.py", "tests/test_calc.py").outcome is Outcome.PASS
        assert judged(desk, {}, "calc.py", "tests/").outcome is Outcome.REVISE

    def test_documents_need_no_proof(self, desk: GateCase) -> None:
        """Nothing is run for them."""
        assert judged(desk, {"README.md": "# Calc\n"}).outcome is Outcome.PASS
        assert desk.ran == []

    def test_a_base_that_is_red_blames_nobody(self, desk: GateCase) -> None:
        """What failed before is said, and does not stop the work."""
        desk.begin({"tests/test_red.py": "def test_red():\n    assert add == 1\n"})

        verdict = judged(desk, WORK)

        assert verdict.outcome is Outcome.PASS
        assert "fail on the base already" in told(verdict)

    def test_the_first_tests_of_a_project_pass(self, tmp_path: Path) -> None:
        """Pytest, and unittest since Python 3.12, end with 5 where there is none, as there was before."""
        desk = GateCase(tmp_path)
        desk.begin({"README.md": "# Calc\n"})

        verdict = judged(desk, {"calc.py": CALC, "test_calc.py": OLD_TEST})

        assert (verdict.outcome, verdict.feedback) == (Outcome.PASS, ())

    def test_a_base_that_never_ends_blames_nobody(self, desk: GateCase) -> None:
        """Which tests are new cannot be told from a command that hangs whatever the work is."""
        desk.commit(WORK)
        desk.longest = 1.0

        with pytest.raises(BrokenGate, match="took longer than it may"):
            desk.judged("proof", gates={"test": "sleep 60"})

    def test_a_new_dependency_in_a_manifest_is_kept(self, desk: GateCase) -> None:
        """Only what steers the runner is put back."""
        desk.begin({"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-q"\n'})
        manifest = '[project]\nname = "x"\n[tool.pytest.ini_options]\naddopts = "-q"\n'
        reader = BETTER + "\nassert 'name' in open('pyproject.toml').read()\n"

        assert judged(desk, {**WORK, "calc.py": reader, "pyproject.toml": manifest}).outcome is Outcome.PASS


class TestTestsThatProveNothing:
    def test_a_new_test_that_passes_without_the_work_goes_back(self, desk: GateCase) -> None:
        """It is named; the others are not."""
        idle = "from calc import add\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n"

        verdict = judged(desk, {**WORK, "tests/test_idle.py": idle})

        assert (verdict.outcome, blamed(verdict)) == (Outcome.REVISE, ["tests/test_idle.py"])

    def test_a_test_that_fails_on_the_head_goes_back(self, desk: GateCase) -> None:
        """With the place that pytest names."""
        verdict = judged(desk, {**WORK, "tests/test_double.py": NEW_TEST.replace("== 4", "== 5")})

        assert verdict.outcome is Outcome.REVISE
        assert ("tests/test_double.py", 5) in [(one.file, one.line) for one in verdict.feedback]

    @pytest.mark.parametrize("body", ["assert True", "double(2)"])
    def test_a_test_that_cannot_fail_goes_back_unrun(self, desk: GateCase, body: str) -> None:
        """Reading it is enough."""
        verdict = judged(
            desk, {**WORK, "tests/test_double.py": NEW_TEST.replace("assert double(2) == 4", body)}
        )

        assert (verdict.outcome, desk.ran) == (Outcome.REVISE, [])
        assert verdict.feedback[0].line == 4

    def test_tests_that_do_not_run_go_back(self, desk: GateCase) -> None:
        """All of them skipped is exit code 0, too."""
        text = (
            "import pytest\nimport calc\n\nif hasattr(calc, 'double'):\n    pytest.importorskip('ghost')\n"
            + NEW_TEST
        )

        verdict = judged(desk, {**WORK, "tests/test_double.py": text})

        assert verdict.outcome is Outcome.REVISE

    def test_code_without_tests_goes_back(self, desk: GateCase) -> None:
        """There is nothing to prove it with."""
        assert judged(desk, {"calc.py": BETTER}).reason == "no test proves the change"


class TestOldTests:
    def test_a_broken_promise_goes_back(self, desk: GateCase) -> None:
        """The new test passes, the old one does not."""
        verdict = judged(desk, {**WORK, "calc.py": BROKEN})

        assert verdict.reason == "the tests of the base fail on the head"

    @pytest.mark.parametrize(
        "trick",
        [
            {"tests/test_calc.py": None},
            {"tests/test_calc.py": OLD_TEST.replace("def test_add", "@pytest.mark.skip\ndef test_add")},
            {"tests/test_calc.py": OLD_TEST.replace("== 3", "== 3 or True")},
            {"tests/test_calc.py": OLD_TEST.replace("def test_add", "def check_add")},
        ],
        ids=["deleted", "skipped", "always so", "renamed"],
    )
    def test_a_weakened_test_is_seen_before_anything_runs(
        self, desk: GateCase, trick: dict[str, str | None]
    ) -> None:
        """Even where it would still pass: tomorrow it would not protect anybody."""
        verdict = judged(desk, {**WORK, **trick})

        assert (verdict.outcome, blamed(verdict), desk.ran) == (Outcome.REVISE, ["tests/test_calc.py"], [])

    @pytest.mark.parametrize("trick", few(TRICKS, "weaker", "patched", "manifest"))
    def test_tampering_does_not_make_the_old_tests_pass(
        self, desk: GateCase, trick: dict[str, str | None]
    ) -> None:
        """They are run as the base has them, by the runner as the base has it."""
        verdict = judged(desk, {**WORK, "calc.py": BROKEN, **trick})

        assert verdict.outcome is Outcome.REVISE
        assert desk.ran[-1][0] in ("test-base", "proof-base", "proof-old")

    def test_code_that_ends_the_runner_is_seen(self, desk: GateCase) -> None:
        """Exit code 0 without a single test is no pass."""
        sly = BROKEN + "\nimport os, sys\nif not os.path.exists('tests/test_double.py'):\n    os._exit(0)\n"

        verdict = judged(desk, {**WORK, "calc.py": sly})

        assert verdict.reason == "the old tests do not run any more"


class TestWithoutARunner:
    def test_no_command_is_said_to_be_none(self, desk: GateCase) -> None:
        """Tests are read all the same."""
        desk.commit(WORK)

        verdict = desk.judged("proof")

        assert (verdict.outcome, verdict.label) == (Outcome.PASS, "skipped")

    def test_a_script_runs_the_whole_suite(self, desk: GateCase) -> None:
        """What cannot be restricted is run as it is, on all three trees."""
        desk.commit(WORK)

        verdict = desk.judged("proof", gates={"test": f"true && {PYTEST}"})

        assert verdict.outcome is Outcome.PASS
        assert {line for _, line in desk.ran} == {f"true && {PYTEST}"}

    def test_the_standard_library_runs_tests_too(self, desk: GateCase) -> None:
        """One file at a time, found as the project finds them."""
        start = "import unittest\nfrom calc import add\n\n\n"
        old = start + "class T(unittest.TestCase):\n    def test_add(self):\n"
        desk.begin({"tests/test_calc.py": old + "        self.assertEqual(add(1, 2), 3)\n"})
        new = old.replace("add", "double") + "        self.assertEqual(double(2), 4)\n"
        desk.commit({"calc.py": BETTER, "tests/test_double.py": new})
        line = f"{sys.executable} -m unittest discover -s tests"

        verdict = desk.judged("proof", gates={"test": line})

        assert verdict.outcome is Outcome.PASS
        assert desk.ran[0][1] == f"{line} -p test_double.py"

    @pytest.mark.torture
    @pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
    def test_node_runs_tests_too(self, desk: GateCase) -> None:
        """The same three trees, in another language."""
        head = "const test = require('node:test');\nconst assert = require('node:assert');\n"
        test = "test('{0}', () => assert.equal(require('../calc.js').{0}(2), 4));\n"
        desk.begin(
            {"calc.js": "exports.square = (a) => a * a;\n", "tests/old.test.js": head + test.format("square")}
        )
        code = "exports.square = (a) => a * a;\nexports.double = (a) => 2 * a;\n"
        desk.commit({"calc.js": code, "tests/new.test.js": head + test.format("double")})

        assert desk.judged("proof", gates={"test": "node --test tests/"}).outcome is Outcome.PASS

        desk.commit({"calc.js": code.replace("a * a", "a")})
        assert desk.judged("proof", gates={"test": "node --test tests/"}).outcome is Outcome.REVISE
