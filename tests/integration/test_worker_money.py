"""Caps and providers' limits at work: real processes, a real board, agents that report what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from liza.daemon.policy.progress import human_waits, only_people
from liza.daemon.turn import AfterTurn
from liza.domain import budget, providers
from liza.domain.changes import HUMAN, Change
from liza.domain.model import Status, WorkerStatus
from liza.domain.record import utc_now
from liza.domain.spending import Provenance, ProviderState
from liza.workflow.transition import reply
from tests.office import PATIENCE, ROOT, STEPS, Office, dear
from tests.player import __file__ as player_file
from tests.player import by_default
from tests.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def alerts(office: Office) -> list[str]:
    path = office.home / "alerts.log"
    return path.read_text().splitlines() if path.exists() else []


def runs(office: Office) -> int:
    return len(list((office.home / "runs").glob("*/reply.json")))


def pay(office: Office, kind: str, usd: float) -> None:
    """Let the board know what a run of *kind* cost."""
    bill = budget.Bill("coder-9", None, kind, usd, Provenance.REPORTED)
    office.board.update(Change("coder-9", "pay", lambda state: budget.settle_run(state, bill)))


class TestTheBudget:
    def test_a_dollar_and_forty_cents_a_run(self, tmp_path: Path) -> None:
        """A turn that could not be finished is not begun; all wait, the board asks, an answer lets go on."""
        office = Office(tmp_path, dear(), budget={"run_usd": 1})

        for name in ("planner-1", "coder-1", "reviewer-1", "planner-1", "coder-1"):
            office.turn(name)

        assert runs(office) == 1
        task = office.state.task("t1")
        assert (task.status, task.failed_by, task.lease) == (Status.IDLE, (), None)
        assert office.state.agents["coder-1"].status is WorkerStatus.PARKED
        assert [wait.then for wait in human_waits(office.state)] == ["liza answer budget 2"]
        assert only_people(office.state, utc_now())
        told = [line for line in alerts(office) if "everybody pauses" in line]
        assert len(told) == 1
        shell = Shell(office.user.directory)
        assert "the budget is reached: $0.40 of $1.00" in shell.ok("status")
        assert shell("answer", "budget", "please").code == 2

        shell.ok("answer", "budget", "30")

        office.turns("planner-1", "coder-1", "reviewer-1")
        assert office.status() is Status.MERGED
        total = office.state.spend.total
        assert (total.reported, total.estimated, office.state.spend.reserved) == (1.6, 0, ())

    def test_people_are_warned_once_at_four_fifths(self, tmp_path: Path) -> None:
        """A cap does not come as a surprise."""
        office = Office(tmp_path, dear(), budget={"run_usd": 2})

        office.turns("planner-1", "coder-1", "reviewer-1")

        assert [line.partition(" ")[2][:24] for line in alerts(office)] == ["$1.60 of the $2.00 that "]

    def test_a_task_has_a_cap_of_its_own(self, tmp_path: Path) -> None:
        """It is BLOCKED with the question, no planner is paid to think of it, an amount lets it go on."""
        office = Office(tmp_path, dear(), budget={"task_usd": 1})
        office.task()

        office.turns("planner-1", "coder-1", "reviewer-1")

        assert office.status() is Status.BLOCKED
        assert "`liza answer t1 2`" in office.state.task("t1").blocked_questions[0]
        assert runs(office) == 2
        office.board.update(reply("t1", "3", by=HUMAN, at=utc_now()))
        office.turns("planner-1", "coder-1", "reviewer-1")
        assert office.status() is Status.MERGED
        assert office.state.config.budget.task_usd == 1

    def test_workers_together_do_not_pass_it(self, tmp_path: Path) -> None:
        """What one of them begins is set aside before another one looks."""
        script = {"checkpoint": {"answer": {"intent": "write it", "usage": {"usd": 0.25}}, "sleep": 0.2}}
        office = Office(tmp_path, script, workers={"coder": 4}, budget={"run_usd": 0.6})
        names = [f"coder-{number}" for number in range(1, 5)]
        for name in names:
            office.place(name)
            office.task(f"t{name[-1]}")

        with ThreadPoolExecutor(4) as coders:
            list(coders.map(office.turn, names))

        assert runs(office) == 2
        assert office.state.spend.total.usd == 0.5

    def test_a_program_of_ones_own_that_reports_nothing_is_shown_as_such(self, tmp_path: Path) -> None:
        """Nobody but its author knows what it does, so that nothing is made up; what holds it is said."""
        office = Office(tmp_path)
        office.task()

        office.turns("coder-1", "reviewer-1")

        total = office.state.spend.total
        assert (total.runs, total.usd, total.unreported) == (3, 0, 3)
        shell = Shell(office.user.directory)
        assert "3 of 3 runs did not report what they cost" in shell.ok("status")
        assert "3 not reported" in shell.ok("cost")
        assert "no cap holds them; 10 rounds a coder and 30 minutes a run do" in shell.ok(
            "run", "--plan-bound"
        )

    def test_one_that_forgets_to_report_counts_as_its_like_did(self, tmp_path: Path) -> None:
        """Silence is no way round the cap for who spoke before."""
        script = dear()
        del script["implement"], script["review"]
        office = Office(tmp_path, script)
        office.task()

        office.turns("coder-1", "reviewer-1")

        total = office.state.spend.total
        assert (total.reported, total.estimated, total.unreported) == (0.4, 0.8, 0)

    def test_a_run_that_tells_its_cost_is_ended_at_the_cap_and_its_work_saved(self, tmp_path: Path) -> None:
        """Three coders at once go towards $100 each, where $0.04 was usual; each dime is told."""
        script = dear(0.04)
        dimes = [round(0.1 * number, 1) for number in range(1, 1000)]
        script["implement"] = {**script["implement"], "write": {"half.txt": "half"}, "spent": dimes}
        office = Office(tmp_path, script, workers={"coder": 3}, budget={"run_usd": 3})
        pay(office, "checkpoint command", 0.04)
        pay(office, "implement command", 0.04)
        names = [f"coder-{number}" for number in range(1, 4)]
        for name in names:
            office.place(name)
            office.task(f"t{name[-1]}")

        with ThreadPoolExecutor(3) as coders:
            list(coders.map(office.turn, names))

        assert 2 < office.state.spend.total.usd < 3 + 3
        replies = [json.loads(path.read_text()) for path in office.home.glob("runs/*.implement/reply.json")]
        assert {one["ending"] for one in replies} == {"capped"}
        assert "of the $3.00 for everything no more is left" in replies[0]["why"]
        assert {office.status(f"t{name[-1]}") for name in names} == {Status.IDLE}
        assert all((office.user.worktrees.path_of(f"t{name[-1]}") / "half.txt").exists() for name in names)

    def test_what_a_killed_worker_set_aside_is_spent(self, tmp_path: Path) -> None:
        """Nobody knows what its agent cost but by its like, and nothing stays set aside for ever."""
        office = Office(tmp_path, {"checkpoint": {"note": str(tmp_path / "yard" / "note"), "sleep": 60}})
        office.task()
        pay(office, "checkpoint command", 0.3)
        with office.process("coder-1"):
            office.noted()
        assert [one.id for one in office.state.spend.reserved] == ["coder-1"]

        office.place("coder-1")

        assert office.state.spend.reserved == ()
        assert office.state.spend.total.estimated == 0.3


class TestProviders:
    def played(self, tmp_path: Path, first: dict[str, Any], **settings: Any) -> Office:  # noqa: ANN401 - as of an office
        """Return an office whose coder is turned down once by its provider, and works then."""
        recording = tmp_path / "recording.yaml"
        agents = {"default": {"backend": "replay", "provider": "acme", "command": [str(recording), "1"]}}
        office = Office(tmp_path, agents=agents, **settings)
        acts = {step: by_default(step, "t1")["answer"] for step in STEPS}
        said = [
            {"role": "coder", "step": "checkpoint", **first},
            {"role": "coder", "step": "checkpoint"},
            {"role": "coder", "step": "implement", "files": {"t1.txt": "t1\n"}},
            {"role": "reviewer", "step": "review"},
        ]
        for run in said:
            run.setdefault("reply", f"```liza\n{json.dumps(acts[str(run['step'])])}\n```")
        recording.write_text(json.dumps({"runs": [{"task": "t1", **run} for run in said]}))
        office.task()
        return office

    def test_a_rate_limit_passes_by_itself(self, tmp_path: Path) -> None:
        """The run goes on after the reset: no failure, no round, one alert."""
        limited = {"reply": "", "ending": "rate_limited", "why": "429, slow down", "reset_in": 5}
        office = self.played(tmp_path, limited)
        began = utc_now()

        with office.process("coder-1"), office.process("reviewer-1"):
            state = office.until(lambda state: state.status_of("t1") is Status.MERGED)

        assert utc_now() - began >= timedelta(seconds=5)
        task = state.task("t1")
        assert (task.failed_by, task.iteration, task.review_cycles_total) == ((), 1, 0)
        assert state.agents["coder-1"].crashes == ()
        assert len(alerts(office)) == 1
        assert "acme is limited until" in alerts(office)[0]
        assert state.providers["acme"].state is ProviderState.OPEN

    def test_an_exhausted_window_parks_everybody_who_uses_it(self, tmp_path: Path) -> None:
        """The board says until when; nobody tries before, and it is not for people to mend."""
        office = self.played(
            tmp_path, {"reply": "", "ending": "quota", "why": "weekly limit", "reset_in": 3600}
        )
        office.turn("coder-1")

        for _ in range(3):
            assert office.turn("coder-1") is AfterTurn.WAIT

        assert runs(office) == 1
        assert only_people(office.state, utc_now()) == ()
        said = Shell(office.user.directory).ok("status")
        assert "acme is exhausted until" in said
        assert "weekly limit; work goes on by itself" in said
        until = office.state.providers["acme"].until
        assert until
        assert timedelta(minutes=59) < until - utc_now() < timedelta(minutes=62)

    def test_a_bad_key_stops_until_a_person_says_so(self, tmp_path: Path) -> None:
        """One try, one alert, one question; `liza resume` tries again."""
        office = self.played(tmp_path, {"reply": "", "ending": "auth", "why": "invalid x-api-key"})
        office.turn("coder-1")
        for _ in range(3):
            assert office.turn("coder-1") is AfterTurn.WAIT

        assert runs(office) == 1
        assert [wait.then for wait in only_people(office.state, utc_now())] == ["liza resume"]
        assert len(alerts(office)) == 1
        shell = Shell(office.user.directory)
        assert "acme refuses: invalid x-api-key; mend that, then `liza resume`" in shell.ok("status")

        assert "acme is tried again" in shell.ok("resume")

        with office.process("coder-1"), office.process("reviewer-1"):
            office.until(lambda state: state.status_of("t1") is Status.MERGED)
        assert len(alerts(office)) == 1

    @pytest.mark.parametrize("ending", ["quota", "auth"])
    def test_the_fallback_takes_over_with_the_work_kept(self, tmp_path: Path, ending: str) -> None:
        """In the same turn where the quota ends in the middle of the work; afterwards from the start."""
        player = [sys.executable, "-S", player_file, str(tmp_path / "yard" / "script.json")]
        recording = tmp_path / "recording.yaml"
        default = {
            "backend": "replay",
            "provider": "acme",
            "command": [str(recording), "1"],
            "effort": "high",
        }
        agents = {
            "default": default,
            "fallback": {"command": player},
            "overrides": {"reviewer": {"command": player, "backend": "command", "provider": "me"}},
        }
        script = {"implement t1": {"run": "cat half.txt", "answer": {"status": "done", "summary": "go on"}}}
        office = Office(tmp_path, script, agents=agents)
        intent = f"```liza\n{json.dumps(by_default('checkpoint', 't1')['answer'])}\n```"
        shut = {"ending": ending, "why": "no more", "reset_in": 3600}
        half: dict[str, Any] = {"step": "implement", "files": {"half.txt": "half\n"}, "reply": "", **shut}
        runs_of_acme = [{"step": "checkpoint", "reply": intent}, half]
        recording.write_text(
            json.dumps({"runs": [{"role": "coder", "task": "t1", **run} for run in runs_of_acme]})
        )
        office.task("t1")

        office.turns("coder-1", "reviewer-1")
        office.task("t2")
        office.turns("coder-1", "reviewer-1")

        assert (office.status("t1"), office.status("t2")) == (Status.MERGED, Status.MERGED)
        assert office.merged("half.txt") == "half"
        assert runs(office) == 2 + 2 + 3  # two of acme's, then only the fallback's
        assert "stands in meanwhile (agents.fallback)" in Shell(office.user.directory).ok("status")
        assert "stands in meanwhile" in alerts(office)[0]
        kinds = {one.kind for one in office.state.spend.kinds}
        assert kinds >= {"checkpoint command", "implement command"}

    def test_a_limit_of_one_provider_does_not_stop_another(self, tmp_path: Path) -> None:
        """A reviewer with another agent goes on."""
        office = Office(tmp_path)
        office.task()
        office.turn("coder-1")
        agents = office.state.config.agents
        theirs = agents.replace(overrides={"coder": agents.default.replace(provider="acme")})
        down = providers.ProviderRejection(ProviderState.EXHAUSTED, "used up")

        def make(state: State) -> State:
            state = state.replace(config=state.config.replace(agents=theirs))
            return providers.with_rejection(state, "acme", "coder-1", down, at=utc_now(), chance=0)

        office.board.update(Change("human", "test", make))
        office.task("t2")

        assert office.turn("coder-1") is AfterTurn.WAIT
        office.turns("reviewer-1")
        assert (office.status("t1"), office.status("t2")) == (Status.MERGED, Status.IDLE)


def test_a_whole_run_stops_at_its_budget_and_says_so(tmp_path: Path) -> None:
    """`liza run --until-idle` ends with 3 at the cap, and with 0 once there is enough."""
    office = Office(tmp_path, dear(), budget={"run_usd": 1})
    shell = Shell(office.user.directory)

    def run() -> int:
        words = [sys.executable, "-m", "liza", "-C", str(office.user.directory), "run", "--until-idle"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environment, timeout=PATIENCE, check=False, capture_output=True)
        return done.returncode

    assert run() == 3
    assert runs(office) == 1
    shell.ok("answer", "budget", "30")
    assert run() == 0
    assert office.status() is Status.MERGED
