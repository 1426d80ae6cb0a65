"""The baseline: the project's own gates on what work is based on, before any agent is paid."""

from __future__ import annotations

import _socket
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liza.daemon.baseline import BaselineContext, cached_baseline, run_baseline
from liza.domain.changes import Change
from liza.domain.config import BREAKER_PREFIX, Config, Limits
from liza.domain.model import BreakerStatus, Sprint, Status
from liza.domain.record import utc_now
from liza.domain.rules import with_due_trips
from liza.errors import RedBase
from liza.gates.causes import CommandSurroundings, likely_cause
from liza.gates.context import CommandResult
from liza.repo.pool import require_copies
from liza.system.run_control import RunControl, RunEnding
from liza.system.sandbox.bubblewrap import allowed_environment
from tests.support.gate_cases import PYTEST
from tests.support.repos import Home
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from collections.abc import Mapping

RED = "def test_red():\n    assert 1 == 2\n"
GREEN = "from src.b import B\n\n\ndef test_b():\n    assert B == 1\n"


def ground(
    directory: Path, gates: Mapping[str, str], files: Mapping[str, str] | None = None
) -> BaselineContext:
    user = Home(directory / "project")
    user.commit({"src/__init__.py": "", "test_b.py": GREEN, **(files or {})})
    config = Config.model_validate({"gates": gates, "sandbox": {"mode": "off"}})
    return BaselineContext(user.directory / ".liza", user.repository, config)


class TestBaseline:
    def test_a_good_base_is_tried_once(self, tmp_path: Path) -> None:
        """Kept by tree and command; who looks later need not run anything."""
        place = ground(tmp_path, {"setup": "true", "lint": "cat src/b.py", "test": PYTEST})
        said: list[str] = []
        assert cached_baseline(place) is None

        found = run_baseline(place, RunControl(), said.append)

        assert found
        found.require_usable()
        ran = sorted(path.name.rpartition(".")[2] for path in (place.home / "runs").iterdir())
        assert ran.count("test-base") == 1
        lint, test = list(found.lines())[1:]
        assert test.startswith("test passes in")
        assert "says nothing about code" in lint  # `cat` does not mind what it prints
        assert [line.partition(" on ")[0] for line in said][:2] == ["trying setup", "trying lint"]
        again = run_baseline(place, RunControl(), said.append)
        assert again
        assert [one.result.run for one in again.tried] == [one.result.run for one in found.tried]
        assert cached_baseline(place)

    def test_tests_that_are_red_already_are_known_by_name(self, tmp_path: Path) -> None:
        """Work goes on, and people are told which do not count."""
        found = run_baseline(ground(tmp_path, {"test": PYTEST}, {"test_red.py": RED}), RunControl())

        assert found
        found.require_usable()
        assert found.tried[0].result.failed == ("test_red.py::test_red",)
        assert "1 test, which is known and does not count against work" in next(iter(found.lines()))

    def test_where_most_tests_are_red_nothing_starts(self, tmp_path: Path) -> None:
        """The few that are left would let nearly every breaking change through."""
        thirty = "@pytest.mark.parametrize('n', range(30))\ndef test_red(n):\n    assert n < 0\n"
        broken = f"import pytest\n\n\n{thirty}"
        found = run_baseline(ground(tmp_path, {"test": PYTEST}, {"test_red.py": broken}), RunControl())

        assert found
        with pytest.raises(RedBase, match="30 of 31 tests are red on the base, too many"):
            found.require_usable()

    def test_where_all_tests_are_red_it_is_said_why_and_not_that_they_pass(self, tmp_path: Path) -> None:
        """What they need is missing, so that broken code makes nothing worse."""
        user = Home(tmp_path / "project")
        user.write("code2.py", "def f():\n    return 1\n")
        needs = "    open('cache/made')\n    from code2 import f\n    assert f() == 1\n"
        user.write("test_code.py", f"def test_f():\n{needs}")
        user.commit()
        config = Config.model_validate({"gates": {"test": PYTEST}, "sandbox": {"mode": "off"}})
        place = BaselineContext(user.directory / ".liza", user.repository, config)

        found = run_baseline(place, RunControl())

        assert found
        with pytest.raises(RedBase, match=r"test is red on the base .*, and no redder where") as refused:
            found.require_usable()
        assert "still passes" not in str(refused.value)
        assert "| FAILED test_code.py::test_f" in str(refused.value)
        kept = cached_baseline(place)
        assert kept
        assert kept.blocking_gates

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("ghost-of-a-program --all", r"ghost-of-a-program is not on the PATH"),
            ("env/bin/check", "env/bin/check is in your checkout, but not in git"),
            ("echo it is broken; exit 3", "it is broken"),
            ("echo 'Ran 1 test'; echo OK; exit 3", "red on the base: exit code 3"),
            ("echo it is broken; echo 'npm notice there is a new npm'; exit 3", "base: it is broken"),
            ("true", "does not see the code"),
        ],
    )
    def test_where_work_could_not_be_judged_nothing_starts(
        self, tmp_path: Path, line: str, says: str
    ) -> None:
        """The last lines and the likely cause, for whoever has to mend it."""
        place = ground(tmp_path, {"test": line})
        untracked = place.repository.root / "env/bin/check"
        untracked.parent.mkdir(parents=True)
        untracked.write_text("#!/bin/sh\n")

        found = run_baseline(place, RunControl())

        assert found
        with pytest.raises(RedBase, match=says) as refused:
            found.require_usable()
        assert refused.value.exit_code == 6
        assert "likely: " in str(refused.value)
        kept = cached_baseline(place)
        assert kept
        assert kept.blocking_gates

    def test_a_gate_that_never_ends_is_told_as_such(self, tmp_path: Path) -> None:
        """With the limit that it ran into, instead of an exit code that is our signal's."""
        place = ground(tmp_path, {"test": "sleep 60"})
        short = place.config.replace(limits=Limits(agent_minutes=0.02))

        found = run_baseline(BaselineContext(place.home, place.repository, short), RunControl())

        assert found
        with pytest.raises(RedBase, match="test was not through on the base: it took longer") as refused:
            found.require_usable()
        assert "`limits.agent_minutes`" in str(refused.value)

    @pytest.mark.parametrize(
        ("line", "likely"),
        [
            (f"{PYTEST} test", "but in tests"),
            (f"{PYTEST} docs", "such as tests/test_code.py"),
            (f"{sys.executable} -m unittest -q", "such as tests/test_code.py"),
            (f"{sys.executable} -m unittest discover -s docs -p 'x*.py'", "such as tests/test_code.py"),
            ("make -s test", "such as tests/test_code.py"),
            ("cd docs && echo no tests ran; exit 5", None),
        ],
    )
    def test_a_command_that_finds_no_test_where_there_are_some_is_wrong(
        self, line: str, likely: str | None, tmp_path: Path
    ) -> None:
        """It was taken for a project without tests, and everything was merged."""
        user = Home(tmp_path / "project")
        user.write("code.py", "def f():\n    return 1\n")
        user.write("tests/test_code.py", "from code import f\n\n\ndef test_f():\n    assert f() == 1\n")
        user.write("tests/test/__init__.py", "")
        user.write("docs/a.md", "x\n")
        user.write("Makefile", "test:\n\techo no tests ran; exit 5\n")
        user.commit()
        config = Config.model_validate({"gates": {"test": line}, "sandbox": {"mode": "off"}})

        found = run_baseline(BaselineContext(user.directory / ".liza", user.repository, config), RunControl())

        assert found
        if likely is None:
            found.require_usable()
            return
        with pytest.raises(RedBase) as refused:
            found.require_usable()
        assert likely in str(refused.value)

    @pytest.mark.parametrize("line", [PYTEST, f"{sys.executable} -m unittest -q"], ids=["pytest", "unittest"])
    def test_a_project_without_tests_may_begin(self, line: str, tmp_path: Path) -> None:
        """That there is nothing to test yet is no failure; before Python 3.12 unittest is green then."""
        user = Home(tmp_path / "project")
        user.write("code.py", "def f():\n    return 1\n")
        user.commit()
        config = Config.model_validate({"gates": {"test": line}, "sandbox": {"mode": "off"}})

        found = run_baseline(BaselineContext(user.directory / ".liza", user.repository, config), RunControl())

        assert found
        found.require_usable()
        assert "no tests yet" in next(iter(found.lines()))


def commit_submodule(user: Home, name: str, files: Mapping[str, str]) -> None:
    other = Home(user.directory.parent / f"{user.directory.name}-lib")
    other.commit(files)
    user.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.directory), name)
    user.git("commit", "-q", "-m", "Add a submodule")


class TestCauses:
    @pytest.mark.parametrize(
        ("is_sandboxed", "line", "said", "code", "says"),
        [
            (True, ".venv/bin/python -m pytest", "sh: .venv/bin/python: not found", 127, "`sandbox.show`"),
            (False, ".venv/bin/python -m pytest", "sh: .venv/bin/python: not found", 127, "`gates.setup`"),
            (True, "pytest", "ModuleNotFoundError: No module named 'thing'", 2, "`PYTHONPATH=src`"),
            (True, "pytest", "ModuleNotFoundError: No module named 'thing.core'", 2, "`PYTHONPATH=src`"),
            (True, "pytest", "ModuleNotFoundError: No module named 'thing.made'", 2, "[src/thing/made.py]"),
            (True, "pytest", "cannot import name 'made' from 'thing' (/x)", 2, "[src/thing/made.py]"),
            (True, "pytest", "No module named 'thing.nowhere'", 2, "not in your checkout either"),
            (True, "pytest", "No module named 'service'", 2, "`PYTHONPATH=back`"),
            (True, "pytest", "ModuleNotFoundError: No module named 'numpy'", 2, "has no numpy; install"),
            (False, "npm test", "Error: Cannot find module 'left-pad'", 1, "`npm ci`"),
            (False, ".env/bin/python a.py", "sh: .env/bin/python: not found", 127, "no .env/bin/python on"),
            (False, "node a", "Cannot find module './lib/out'\nRequire stack:\n- {top}/a.js", 1, "lib/out"),
            (False, "./run", "open .env: no such file or directory", 1, "[.env]"),
            (True, "./run", "No such file or directory: '{root}/.env'", 1, "[.env]"),
            (False, "./run", "No such file or directory: '{top}/.env'", 1, "[.env]"),
            (False, "./run", "Error: ENOENT: no such file or directory, open '{top}/.env'", 1, "[.env]"),
            (False, "./run", "No such file or directory @ rb_sysopen - .env", 1, "[.env]"),
            (False, "./run", "KeyError: 'DB_URL'", 1, "DB_URL is set in .env"),
            (False, "./run", "DB_URL is not set", 1, "[.env]"),
            (False, "cc a.c", "a.c:1: fatal error: loose.h: No such file or directory", 1, "commit it"),
            (False, "make check", "make: *** No rule to make target 'check'.  Stop.", 2, "`cd back && `"),
            (False, "cd back && make", "make: *** No rule to make target 'x'.  Stop.", 2, "has no target x"),
            (False, "cd back && make", "No rule to make target 'x'.  Stop.", 2, "it has check, lint"),
            (False, "cd back/web && npm t", 'npm error Missing script: "tset"', 1, "it has lint, test"),
            (False, "node --tset", "node: bad option: --tset", 9, "does not know --tset"),
            (False, "pytest --x", "pytest: error: unrecognized arguments: --x", 4, "does not know --x"),
            (False, "./run", "vendor/lib/a.h is missing", 2, "`worktree: {{copy: [vendor/lib]}}`"),
            (False, "npm test", "npm error enoent Could not read package.json", 254, "`cd back/web && `"),
            (False, "pytest tests", "ERROR: file or directory not found: tests", 4, "`cd back && `"),
            (False, "python3 manage.py", "python3: can't open file '{top}/manage.py'", 2, "`cd back"),
            (False, "cd fron && ls", "sh: 1: cd: can't cd to fron", 2, "fresh clone"),
            (False, "make", "what?", 2, "fresh clone"),
        ],
    )  # fmt: skip
    def test_a_cause_names_what_helps(
        self, tmp_path: Path, *, is_sandboxed: bool, line: str, said: str, code: int, says: str
    ) -> None:
        """Not in the sandbox, not in git, not installed, not here: each has its own way out."""
        user = Home(tmp_path / "project")
        user.commit(
            {
                ".gitignore": ".venv\nnode_modules\nmade.py\n.env\n/lib/\n",
                **dict.fromkeys(("src/thing/__init__.py", "src/thing/core.py", "back/service.py"), "x\n"),
                **dict.fromkeys(("back/tests/test_a.py", "back/manage.py"), "x\n"),
                "back/Makefile": "X := 1\ncheck lint: all\n\ttrue\n.PHONY: check\n",
                "back/web/package.json": '{"scripts": {"test": "x", "lint": "y"}}',
            }
        )
        commit_submodule(user, "vendor/lib", {"a.h": "x\n"})
        for name in (".venv/bin/python", "node_modules/x", "src/thing/made.py", "lib/out.js", "loose.h"):
            user.write(name, "x\n")
        user.write(".env", "DB_URL=x\n")
        said = said.format(root=user.directory, top=user.repository.area / ".scratch-1")

        found = likely_cause(
            CommandSurroundings(user.repository, is_sandboxed),
            line,
            CommandResult(code, RunEnding.DONE, err=said),
        )

        assert says.replace("{{", "{").replace("}}", "}") in found

    @pytest.mark.parametrize(
        "said", ["sh: 1: jest: not found", "Error: Cannot find module 'tape'\nRequire stack:\n- /x/a.js"]
    )
    def test_packages_that_nobody_installed_are_told(self, tmp_path: Path, said: str) -> None:
        """The first thing after a fresh clone of a project of Node's."""
        user = Home(tmp_path / "project")
        user.commit({"web/package.json": "{}\n"})
        ran = CommandResult(127, RunEnding.DONE, err=said)

        found = likely_cause(
            CommandSurroundings(user.repository, is_sandboxed=True), "npm --prefix web test", ran
        )

        assert "run `npm install` there" in found

    @pytest.mark.parametrize(
        ("ignored", "line", "code"),
        [
            ("src/made.py", "PYTHONPATH=src {python} -c 'import made'", "A = 1\n"),
            ("src/thing/made.py", "{python} -c 'from src.thing import made'", "A = 1\n"),
            (".env", "{python} -c 'open(\".env\")'", "A=1\n"),
            ("src/thing/_socket.so", "{python} -c 'from src.thing._socket import socket'", None),
        ],
    )
    def test_what_a_cause_names_does_help(
        self, tmp_path: Path, ignored: str, line: str, code: str | None
    ) -> None:
        """Whoever copies the setting from the sentence can begin."""
        python = line.format(python=f"{sys.executable} -S")
        place = ground(
            tmp_path, {"lint": python}, {".gitignore": "made.py\n.env\n*.so\n", "src/thing/x.py": ""}
        )
        path = place.repository.root / ignored
        if code is None:
            path.write_bytes(Path(_socket.__file__).read_bytes())
        else:
            path.write_text(code)
        red = run_baseline(place, RunControl())
        assert red
        assert f"copy it: `worktree: {{copy: [{ignored}]}}`" in red.tried[0].likely

        config = place.config.replace(worktree=place.config.worktree.replace(copied=(ignored,)))
        helped = run_baseline(BaselineContext(place.home, place.repository, config), RunControl())

        assert helped
        helped.require_usable()
        assert helped.tried[0].result.is_green

    def test_a_submodule_can_be_copied(self, tmp_path: Path) -> None:
        """Git leaves its directory empty in every other worktree."""
        place = ground(tmp_path, {"lint": "grep x vendor/lib/a.h"})
        commit_submodule(Home(place.repository.root), "vendor/lib", {"a.h": "x\n"})
        red = run_baseline(place, RunControl())
        assert red
        assert "copy it: `worktree: {copy: [vendor/lib]}`" in red.tried[0].likely

        config = place.config.replace(worktree=place.config.worktree.replace(copied=("vendor/lib",)))
        require_copies(place.repository, config.worktree.copied)
        helped = run_baseline(BaselineContext(place.home, place.repository, config), RunControl())

        assert helped
        assert helped.tried[0].result.is_green

    @pytest.mark.parametrize(
        ("line", "code", "said", "says"),
        [
            (
                "npm test",
                1,
                "{{\n  code: 'EROFS',\n  path: '{root}/node_modules/.cache'\n}}",
                "node_modules/.cache",
            ),
            ("npm test", 1, "EROFS: read-only, mkdir '{root}/node_modules/.vite'", "`sandbox.write`"),
            (
                "pytest",
                1,
                "OSError: [Errno 30] Read-only file system: 'node_modules/.cache'",
                "`sandbox.write`",
            ),
            (
                "source .venv/bin/activate && pytest",
                127,
                "/bin/sh: 1: source: not found",
                "write `.` for that",
            ),
            ("cd tests && pytest", 127, "/bin/sh: 1: pytest: not found", "write `.venv/bin/pytest` for it"),
            ("cd tests && pytset", 127, "/bin/sh: 1: pytset: not found", "pytset is not on the PATH"),
            ("make test", 2, "make: *** No rule to make target 'test'.  Stop.", "there is no Makefile"),
        ],
    )
    def test_what_a_natural_command_lacks_is_told(
        self, tmp_path: Path, line: str, code: int, said: str, says: str
    ) -> None:
        user = Home(tmp_path / "project")
        user.commit({".gitignore": ".venv/\nnode_modules/\n"})
        user.write(".venv/bin/pytest", "")
        user.write("node_modules/nyc/index.js", "")
        ran = CommandResult(code, RunEnding.DONE, err=said.format(root=user.repository.root.resolve()))

        found = likely_cause(CommandSurroundings(user.repository, is_sandboxed=True), line, ran)

        assert says in found

    def test_the_python_of_lizas_own_environment_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first thing that a newcomer runs into, where they activated it."""
        if sys.prefix == sys.base_prefix:
            pytest.skip("Liza is not in an environment of its own")
        monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
        monkeypatch.setenv("PATH", f"{sys.prefix}/bin{os.pathsep}/usr/bin")
        ran = CommandResult(1, RunEnding.DONE, err="/x/python3: No module named pytest")

        found = likely_cause(
            CommandSurroundings(Home(tmp_path / "project").repository, is_sandboxed=True),
            "python3 -m pytest -q",
            ran,
        )

        assert "`deactivate`" in found

    def test_lizas_own_programs_come_last_unless_somebody_activated_them(self) -> None:
        """Whoever put Liza on the PATH wanted `liza`, not another `python3`."""
        if sys.prefix == sys.base_prefix:
            pytest.skip("Liza is not in an environment of its own")
        own = f"{sys.prefix}/bin"
        first = {"PATH": f"{own}{os.pathsep}/usr/bin"}

        assert allowed_environment(first)["PATH"] == f"/usr/bin{os.pathsep}{own}"
        assert allowed_environment({**first, "VIRTUAL_ENV": sys.prefix})["PATH"] == first["PATH"]
        assert allowed_environment({"PATH": "/usr/bin"})["PATH"] == "/usr/bin"


class TestBrokenGates:
    def test_a_gate_that_cannot_judge_stops_everybody_once_and_keeps_the_work(self, tmp_path: Path) -> None:
        """One alert, no round, no money; once it is mended the work is judged without asking its coder."""
        tool = tmp_path / "tool"
        team = ScriptedTeam(tmp_path, gates={"test": f"{tool} t1.txt"})
        team.task()

        team.turn("coder-1")

        task = team.state.task("t1")
        assert (task.status, task.iteration) == (Status.READY_FOR_REVIEW, 1)
        assert (team.home / "PAUSE").read_text().startswith(BREAKER_PREFIX)
        alerts = (team.home / "alerts.log").read_text().splitlines()
        assert len(alerts) == 1
        assert f"{tool}: not found" in alerts[0]
        assert ".liza/runs/" in alerts[0]
        self.trips(team)

        tool.write_text("#!/bin/sh\ntest -f src/b.py\n")
        tool.chmod(0o755)
        (team.home / "PAUSE").unlink()
        team.turns("reviewer-1", "coder-1")

        assert team.status() is Status.MERGED
        assert team.events().count("claim") == 1

    def trips(self, team: ScriptedTeam) -> None:
        team.board.update(Change("supervisor", "trip", lambda state: with_due_trips(state, utc_now())))
        breaker = team.state.circuit_breaker
        assert (breaker.status, [trip.rule for trip in breaker.trips]) == (
            BreakerStatus.TRIPPED,
            ["gate_broken"],
        )

    def test_known_red_tests_count_neither_for_nor_against_the_work(self, tmp_path: Path) -> None:
        """A coder may leave them as they are, and may not add to them."""
        script = {
            "implement t1 1": {"write": {"src/b.py": "B = 2\n"}, "answer": DONE},
            "implement t1 2": {
                "write": {"src/b.py": "B = 1\n", "src/c.py": "C = 3\n", "test_c.py": NEW},
                "answer": DONE,
            },
        }
        team = ScriptedTeam(tmp_path, script, gates={"test": PYTEST})
        base = team.user.commit({"src/__init__.py": "", "test_b.py": GREEN, "test_red.py": RED})
        team.user.git("update-ref", team.ref, base)
        team.task()

        team.turn("coder-1")

        assert team.state.task("t1").rejection_reason in (
            "code is changed without tests",
            "test failed: test_b.py::test_b",
        )
        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        assert team.merged("src/c.py") == "C = 3"


DONE = {"status": "done", "summary": "Add C"}
NEW = "from src.c import C\n\n\ndef test_c():\n    assert C == 3\n"


class TestEqualFailures:
    def test_ten_in_a_row_trip_the_breaker_whoevers_they_are(self, tmp_path: Path) -> None:
        """A failure of another kind, or a pass, begins the row anew."""
        team = ScriptedTeam(tmp_path)
        metrics = team.state.sprint.metrics
        for number in range(1, 11):
            metrics = metrics.replace(
                red_gates=(*metrics.red_gates, f"t{number}#3 test failed: No module named x")
            )
            state = with_due_trips(team.state.replace(sprint=Sprint(metrics=metrics)), utc_now())
            assert [trip.rule for trip in state.circuit_breaker.trips] == (
                ["equal_failures"] if number == 10 else []
            )
