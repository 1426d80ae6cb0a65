"""The canary: a command that does not notice broken code or a failing test has no word in what is merged."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from liza.domain.model import Outcome
from liza.gates.command import CanaryOutcome, run_code_canary
from liza.gates.context import parse_report, with_report_option
from liza.gates.registry import run_gate
from tests.support.few import few
from tests.support.gate_cases import PYTEST, GateCase, blamed, told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

UNITTEST = f"{sys.executable} -m unittest -q"
MAKE = "make -s test"
BASE = {
    "shop/__init__.py": "",
    "shop/price.py": "def price(n):\n    return n * 2\n",
    "tests/__init__.py": "",
    "tests/test_price.py": (
        "import unittest\n"
        "from shop.price import price\n\n\n"
        "class TestPrice(unittest.TestCase):\n"
        "    def test_price(self):\n"
        "        self.assertEqual(price(2), 4)\n"
    ),
    "Makefile": f"include rules.mk\ntest:\n\t@{sys.executable} tools/run.py\n",
    "rules.mk": "",
    "tools/run.py": "import sys, unittest\nunittest.main(module=None, argv=['run', 'discover', '-q'])\n",
}
HONEST = {
    "shop/vat.py": "def vat(n):\n    return n // 5\n",
    "tests/test_vat.py": BASE["tests/test_price.py"]
    .replace("shop.price import price", "shop.vat import vat")
    .replace("price(2), 4", "vat(10), 2"),
}
LIAR = "import os\nprint('3 passed')\nprint('Ran 3 tests', flush=True)\nos._exit(0)\n"
CALLED = "def price(n):\n    import os; print('3 passed', flush=True); os._exit(0)\n"
INFO = "sly-1.dist-info"
PATCH = (
    "import unittest\n"
    "unittest.TestResult.wasSuccessful = lambda self: True\n"
    "unittest.TextTestResult.wasSuccessful = lambda self: True\n"
)
PLUGIN = (
    "import pytest\n"
    "@pytest.hookimpl(hookwrapper=True)\n"
    "def pytest_runtest_makereport(item, call):\n"
    "    report = (yield).get_result()\n"
    "    report.outcome, report.longrepr = 'passed', None\n"
)
# Tests as pytest's own users write them; the base has one, too.
FUNCTIONS = {"tests/test_vat.py": "from shop.vat import vat\n\n\ndef test_vat():\n    assert vat(10) == 2\n"}
SWALLOW = (
    "from _pytest.runner import CallInfo\n"
    "_known = CallInfo.from_call.__func__\n"
    "def _from_call(cls, func, when, reraise=None):\n"
    "    call = _known(cls, func, when, reraise)\n"
    "    if when == 'call':\n"
    "        call.excinfo, call._result = None, None\n"
    "    return call\n"
    "CallInfo.from_call = classmethod(_from_call)\n"
)
ENTRY = "[pytest11]\nsly = shop.sly\n"
CHEATS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "patches the runner": (UNITTEST, {"shop/__init__.py": PATCH}),
    "patches it in a new module": (UNITTEST, {"shop/vat.py": HONEST["shop/vat.py"] + PATCH}),
    "prints a pass and leaves": (UNITTEST, {"shop/__init__.py": LIAR}),
    "leaves when it is called": (UNITTEST, {"shop/price.py": CALLED}),
    "leaves pytest": (PYTEST, {"shop/__init__.py": LIAR}),
    "patches the runner behind an option with a value": (
        f"{UNITTEST} -k price",
        {"shop/__init__.py": PATCH},
    ),
    "swallows what functions say": (PYTEST, {"shop/__init__.py": SWALLOW, **FUNCTIONS}),
    "swallows it behind an option with a value": (
        f"{PYTEST} --log-level INFO",
        {"shop/__init__.py": SWALLOW, **FUNCTIONS},
    ),
    "pytest.toml": (PYTEST, {"pytest.toml": '[pytest]\naddopts = ["--collect-only"]\n'}),
    ".pytest.toml": (PYTEST, {".pytest.toml": '[pytest]\naddopts = ["--collect-only"]\n'}),
    "a new manifest": (PYTEST, {"pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--collect-only"\n'}),
    "a plugin by its entry point": (
        # Plugins are loaded by their entry points, but for those that only happen to be here.
        PYTEST.replace("PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 ", "")
        + " -p no:hypothesispytest -p no:xdist -p no:xdist.looponfail -p no:timeout -p no:anyio",
        {"shop/sly.py": PLUGIN, f"{INFO}/entry_points.txt": ENTRY, f"{INFO}/METADATA": "Name: sly\n"},
    ),
    "patches the runner below make": (MAKE, {"shop/__init__.py": PATCH}),
    "leaves when it is called, below make": (MAKE, {"shop/price.py": CALLED}),
    "patches it from a test, below make": (MAKE, {"tests/__init__.py": PATCH}),
    "what a Makefile includes": (MAKE, {"rules.mk": "SHELL = /bin/true\n"}),
    "what make takes before a Makefile": (MAKE, {"GNUmakefile": "test:\n\t@echo Ran 3 tests\n"}),
    "what a Makefile runs": (MAKE, {"tools/run.py": "print('Ran 3 tests')\n"}),
}  # fmt: skip
OFTEN = (
    "patches the runner",
    "swallows it behind an option with a value",
    "leaves pytest",
    "a plugin by its entry point",
    "what make takes before a Makefile",
    "patches the runner below make",
)


@pytest.fixture
def desk(tmp_path: Path) -> GateCase:
    desk = GateCase(tmp_path)
    desk.begin(BASE)
    return desk


class TestSubmissions:
    @pytest.mark.parametrize("line", [UNITTEST, PYTEST, MAKE])
    def test_honest_work_passes_for_a_few_short_runs(self, desk: GateCase, line: str) -> None:
        """Two test files by themselves where the runner is known; none where nothing steers the command."""
        desk.commit(HONEST)

        verdict = desk.judged("command", {"command": "test"}, gates={"test": line})

        assert verdict.outcome is Outcome.PASS, told(verdict)
        canaries = [command for name, command in desk.ran if name == "canary"]
        assert len(canaries) == (0 if line == MAKE else 2)
        assert line not in canaries

    @pytest.mark.parametrize("cheat", few({name: name for name in CHEATS}, *OFTEN))
    def test_what_is_judged_cannot_replace_what_judges(self, desk: GateCase, cheat: str) -> None:
        """The head with a failing test must be red; every one of these is green without the canary."""
        line, files = CHEATS[cheat]
        if "pytest.toml" in cheat and not reads_toml(desk, line):
            pytest.skip("this pytest does not read pytest.toml")
        desk.commit({**HONEST, **files})

        verdict = desk.judged("command", {"command": "test"}, gates={"test": line})

        assert verdict.outcome is Outcome.REVISE, told(verdict)
        assert verdict.reason in ("the tests stay green whatever fails", "the tests' word cannot be taken")

    def test_an_npm_script_that_was_replaced_is_seen(self, tmp_path: Path) -> None:
        """The runner is node's own; what calls it is a script of the repository."""
        if shutil.which("npm") is None:
            pytest.skip("there is no npm")
        desk, test = GateCase(tmp_path), "const {test} = require('node:test');\ntest('one', () => {});\n"
        desk.begin({"package.json": '{"scripts": {"test": "node --test"}}', "a.test.js": test})
        desk.commit({"package.json": '{"scripts": {"test": "echo ok"}}', "b.js": "module.exports = 1;\n"})

        verdict = desk.judged("command", {"command": "test"}, gates={"test": "npm test"})

        assert verdict.reason == "the tests stay green whatever fails"
        assert "package.json" in [one.file for one in verdict.feedback]

    def test_a_test_that_the_command_never_ran_accuses_nobody(self, desk: GateCase) -> None:
        """The canary has to be red on the base before it says anything about the work."""
        desk.commit({**HONEST, "Makefile": "test:\n\t@true\n# changed\n"})
        desk.base = desk.home.commit({"Makefile": "test:\n\t@true\n"})
        desk.commit({"Makefile": "test:\n\t@true\n# changed\n"})

        assert desk.judged("command", {"command": "test"}, gates={"test": MAKE}).outcome is Outcome.PASS

    def test_fewer_tests_by_a_new_setting_go_back(self, desk: GateCase) -> None:
        """What the canary does not touch may still have been left out."""
        left_out = "[pytest]\naddopts = --ignore=tests/test_price.py\n"
        line = PYTEST
        with desk.case(gates={"test": line}) as case:
            case.base_result("test", line)
            results = case.results
        desk.commit({"pytest.ini": left_out, "shop/more.py": "MORE = 1\n", "tests/test_more.py": MORE})

        with desk.case(gates={"test": line}) as case, replace(case, results=results) as known:
            verdict = run_gate("test", "command", {"command": "test"}, known)

        assert verdict.outcome is Outcome.REVISE
        assert "pytest.ini" in told(verdict)
        assert blamed(verdict) == []


MORE = "from shop.more import MORE\n\n\ndef test_more():\n    assert MORE == 1\n"


def reads_toml(desk: GateCase, line: str) -> bool:
    done = desk.run(f"{line} --version", desk.home.directory, "version")
    return "pytest 9" in done.said


class TestBases:
    @pytest.mark.parametrize(
        ("line", "sight"),
        [
            (UNITTEST, CanaryOutcome.SEES),
            (PYTEST, CanaryOutcome.SEES),
            (MAKE, CanaryOutcome.SEES),
            ("true", CanaryOutcome.BLIND),
        ],
    )
    def test_a_command_that_passes_with_broken_code_is_blind(
        self, desk: GateCase, line: str, sight: CanaryOutcome
    ) -> None:
        """Found once for each base and command."""
        with desk.case(gates={"test": line}) as case:
            assert run_code_canary(case, line).sight is sight
            assert run_code_canary(case, line).sight is sight
            # What would refuse a run is tried again: somebody may have mended it.
            assert len(desk.ran) == (1 if sight is CanaryOutcome.SEES else 2)

    def test_an_editable_installation_of_another_checkout_is_seen(
        self, desk: GateCase, tmp_path: Path
    ) -> None:
        """The tests are those of the tree, and the code that they import is not."""
        shutil.copytree(desk.home.directory / "shop", tmp_path / "elsewhere" / "shop")
        line = f"env PYTHONPATH={tmp_path / 'elsewhere'} {sys.executable} -P -m unittest discover -q -s tests"
        with desk.case(gates={"test": line}) as case:
            assert case.base_result("test", line).is_green
            assert run_code_canary(case, line).sight is CanaryOutcome.BLIND

    def test_where_nothing_can_be_broken_nothing_is_claimed(self, tmp_path: Path) -> None:
        """A repository of documents has no canary."""
        desk = GateCase(tmp_path)
        desk.base = desk.commit({"src/b.py": None, "README.md": "hello\n"})
        with desk.case(gates={"test": "true"}) as case:
            assert run_code_canary(case, "true").sight is CanaryOutcome.UNKNOWN


class TestReports:
    def test_a_runner_is_asked_for_its_report_unless_it_writes_one(self) -> None:
        """Nobody's own report is taken away."""
        assert with_report_option("pytest -q tests", "r.xml") == "pytest -q tests --junitxml=r.xml"
        assert with_report_option("pytest --junitxml=mine.xml", "r.xml") is None
        assert with_report_option("make test", "r.xml") is None

    @pytest.mark.parametrize("data", [b"", b"<a", b'<!DOCTYPE x [<!ENTITY a "b">]><testsuite/>'])
    def test_what_is_no_report_is_none(self, data: bytes) -> None:
        """What is judged can write there as well."""
        assert parse_report(data) is None

    def test_failed_and_passed_tests_are_told_apart(self) -> None:
        """A skipped one is neither, nor one that is still to do, of which Node tells both."""
        text = b"""<testsuites><testsuite>
            <testcase classname="t" name="a"/><testcase classname="t" name="b"><failure/></testcase>
            <testcase classname="t" name="c"><skipped/></testcase>
            <testcase classname="t" name="d"><skipped type="todo"/><failure/></testcase>
            </testsuite></testsuites>"""
        report = parse_report(text)
        assert report
        assert (set(report.passed), set(report.failed)) == ({"t::a"}, {"t::b"})
