"""Caps and providers' limits at work: real processes, a real board, agents that report what they cost."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from liza.daemon.policy.progress import only_people
from liza.daemon.turn import AfterTurn
from liza.domain import budget
from liza.domain.changes import HUMAN, Change
from liza.domain.model import Provenance, ProviderState, Status, WorkerStatus
from liza.domain.record import utc_now
from liza.domain.waits import human_waits
from liza.workflow.transition import reply
from tests.support.liza_process import LizaProcess
from tests.support.scripted_agent import __file__ as player_file
from tests.support.scripted_agent import by_default
from tests.support.scripted_team import PATIENCE, STEPS, ScriptedTeam, dear
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State


def alerts(team: ScriptedTeam) -> list[str]:
    path = team.home / "alerts.log"
    return path.read_text().splitlines() if path.exists() else []


def runs(team: ScriptedTeam) -> int:
    return len(list((team.home / "runs").glob("*/reply.json")))


def pay(team: ScriptedTeam, kind: str, usd: float) -> None:
    """Let the board know what a run of *kind* cost."""
    bill = budget.Bill("coder-9", None, kind, usd, Provenance.REPORTED)
    team.board.update(Change("coder-9", "pay", lambda state: budget.settle_run(state, bill)))


class TestTheBudget:
    def test_a_dollar_and_forty_cents_a_run(self, tmp_path: Path) -> None:
        """A turn that could not be finished is not begun; all wait, the board asks, an answer lets go on."""
        team = ScriptedTeam(tmp_path, dear(), budget={"run_usd": 1})

        for name in ("planner-1", "coder-1", "reviewer-1", "planner-1", "coder-1"):
            team.turn(name)

        assert runs(team) == 1
        task = team.state.task("t1")
        assert (task.status, task.failed_by, task.lease) == (Status.IDLE, (), None)
        assert team.state.agents["coder-1"].status is WorkerStatus.PARKED
        assert [wait.then for wait in human_waits(team.state)] == ["liza answer budget 2"]
        assert only_people(team.state, utc_now())
        told = [line for line in alerts(team) if "everybody pauses" in line]
        assert len(told) == 1
        shell = Shell(team.user.directory)
        assert "the budget is reached: $0.40 of $1.00" in shell.ok("status")
        assert shell("answer", "budget", "please").code == 2

        shell.ok("answer", "budget", "30")

        team.turns("planner-1", "coder-1", "reviewer-1")
        assert team.status() is Status.MERGED
        total = team.state.spend.total
        assert (total.reported, total.estimated, team.state.spend.reserved) == (1.6, 0, ())

    def test_people_are_warned_once_at_four_fifths(self, tmp_path: Path) -> None:
        """A cap does not come as a surprise."""
        team = ScriptedTeam(tmp_path, dear(), budget={"run_usd": 2})

        team.turns("planner-1", "coder-1", "reviewer-1")

        assert [line.partition(" ")[2][:24] for line in alerts(team)] == ["$1.60 of the $2.00 that "]

    def test_a_task_has_a_cap_of_its_own(self, tmp_path: Path) -> None:
        """It is BLOCKED with the question, no planner is paid to think of it, an amount lets it go on."""
        team = ScriptedTeam(tmp_path, dear(), budget={"task_usd": 1})
        team.task()

        team.turns("planner-1", "coder-1", "reviewer-1")

        assert team.status() is Status.BLOCKED
        assert "`liza answer t1 2`" in team.state.task("t1").blocked_questions[0]
        assert runs(team) == 2
        team.board.update(reply("t1", "3", by=HUMAN, at=utc_now()))
        team.turns("planner-1", "coder-1", "reviewer-1")
        assert team.status() is Status.MERGED
        assert team.state.config.budget.task_usd == 1

    def test_workers_together_do_not_pass_it(self, tmp_path: Path) -> None:
        """What one of them begins is set aside before another one looks."""
        script = {"checkpoint": {"answer": {"intent": "write it", "usage": {"usd": 0.25}}, "sleep": 0.2}}
        team = ScriptedTeam(tmp_path, script, workers={"coder": 4}, budget={"run_usd": 0.6})
        names = [f"coder-{number}" for number in range(1, 5)]
        for name in names:
            team.worker(name)
            team.task(f"t{name[-1]}")

        with ThreadPoolExecutor(4) as coders:
            list(coders.map(team.turn, names))

        assert runs(team) == 2
        assert team.state.spend.total.usd == 0.5

    def test_a_program_of_ones_own_that_reports_nothing_is_shown_as_such(self, tmp_path: Path) -> None:
        """Nobody but its author knows what it does, so that nothing is made up; what holds it is said."""
        team = ScriptedTeam(tmp_path)
        team.task()

        team.turns("coder-1", "reviewer-1")

        total = team.state.spend.total
        assert (total.runs, total.usd, total.unreported) == (3, 0, 3)
        shell = Shell(team.user.directory)
        assert "3 of 3 runs did not report what they cost" in shell.ok("status")
        assert "3 not reported" in shell.ok("cost")
        assert "no cap holds them; 10 rounds a coder and 30 minutes a run do" in shell.ok(
            "run", "--plan-bound"
        )

    def test_one_that_forgets_to_report_counts_as_its_like_did(self, tmp_path: Path) -> None:
        """Silence is no way round the cap for who spoke before."""
        script = dear()
        del script["implement"], script["review"]
        team = ScriptedTeam(tmp_path, script)
        team.task()

        team.turns("coder-1", "reviewer-1")

        total = team.state.spend.total
        assert (total.reported, total.estimated, total.unreported) == (0.4, 0.8, 0)

    def test_a_run_that_tells_its_cost_is_ended_at_the_cap_and_its_work_saved(self, tmp_path: Path) -> None:
        """Three coders at once go towards $100 each, where $0.04 was usual; each dime is told."""
        script = dear(0.04)
        dimes = [round(0.1 * number, 1) for number in range(1, 1000)]
        script["implement"] = {**script["implement"], "write": {"half.txt": "half"}, "spent": dimes}
        team = ScriptedTeam(tmp_path, script, workers={"coder": 3}, budget={"run_usd": 3})
        pay(team, "checkpoint command", 0.04)
        pay(team, "implement command", 0.04)
        names = [f"coder-{number}" for number in range(1, 4)]
        for name in names:
            team.worker(name)
            team.task(f"t{name[-1]}")

        with ThreadPoolExecutor(3) as coders:
            list(coders.map(team.turn, names))

        assert 2 < team.state.spend.total.usd < 3 + 3
        replies = [json.loads(path.read_text()) for path in team.home.glob("runs/*.implement/reply.json")]
        assert {one["ending"] for one in replies} == {"capped"}
        assert "of the $3.00 for everything no more is left" in replies[0]["why"]
        assert {team.status(f"t{name[-1]}") for name in names} == {Status.IDLE}
        assert all((team.user.worktrees.path_of(f"t{name[-1]}") / "half.txt").exists() for name in names)

    def test_what_a_killed_worker_set_aside_is_spent(self, tmp_path: Path) -> None:
        """Nobody knows what its agent cost but by its like, and nothing stays set aside for ever."""
        note = str(tmp_path / "outside" / "note")
        team = ScriptedTeam(tmp_path, {"checkpoint": {"note": note, "sleep": 60}})
        team.task()
        pay(team, "checkpoint command", 0.3)
        with team.process("coder-1"):
            team.noted()
        assert [one.id for one in team.state.spend.reserved] == ["coder-1"]

        team.worker("coder-1")

        assert team.state.spend.reserved == ()
        assert team.state.spend.total.estimated == 0.3


class TestProviders:
    def played(self, tmp_path: Path, first: dict[str, Any], **settings: Any) -> ScriptedTeam:  # noqa: ANN401 - as of a team
        """Return a team whose coder is turned down once by its provider, and works then."""
        recording = tmp_path / "recording.yaml"
        agents = {"default": {"backend": "replay", "provider": "acme", "command": [str(recording), "1"]}}
        team = ScriptedTeam(tmp_path, agents=agents, **settings)
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
        team.task()
        return team

    def test_a_rate_limit_passes_by_itself(self, tmp_path: Path) -> None:
        """The run goes on after the reset: no failure, no round, one alert."""
        limited = {"reply": "", "ending": "rate_limited", "why": "429, slow down", "reset_in": 5}
        team = self.played(tmp_path, limited)
        began = utc_now()

        with team.process("coder-1"), team.process("reviewer-1"):
            state = team.until(lambda state: state.status_of("t1") is Status.MERGED)

        assert utc_now() - began >= timedelta(seconds=5)
        task = state.task("t1")
        assert (task.failed_by, task.iteration, task.review_cycles_total) == ((), 1, 0)
        assert state.agents["coder-1"].crashes == ()
        assert len(alerts(team)) == 1
        assert "acme is limited until" in alerts(team)[0]
        assert state.providers["acme"].state is ProviderState.OPEN

    def test_an_exhausted_window_parks_everybody_who_uses_it(self, tmp_path: Path) -> None:
        """The board says until when; nobody tries before, and it is not for people to mend."""
        team = self.played(
            tmp_path, {"reply": "", "ending": "quota", "why": "weekly limit", "reset_in": 3600}
        )
        team.turn("coder-1")

        for _ in range(3):
            assert team.turn("coder-1") is AfterTurn.WAIT

        assert runs(team) == 1
        assert only_people(team.state, utc_now()) == ()
        said = Shell(team.user.directory).ok("status")
        assert "acme is exhausted until" in said
        assert "weekly limit; work goes on by itself" in said
        until = team.state.providers["acme"].until
        assert until
        assert timedelta(minutes=59) < until - utc_now() < timedelta(minutes=62)

    def test_a_bad_key_stops_until_a_person_says_so(self, tmp_path: Path) -> None:
        """One try, one alert, one question; `liza resume` tries again."""
        team = self.played(tmp_path, {"reply": "", "ending": "auth", "why": "invalid x-api-key"})
        team.turn("coder-1")
        for _ in range(3):
            assert team.turn("coder-1") is AfterTurn.WAIT

        assert runs(team) == 1
        assert [wait.then for wait in only_people(team.state, utc_now())] == ["liza resume"]
        assert len(alerts(team)) == 1
        shell = Shell(team.user.directory)
        assert "acme refuses: invalid x-api-key; mend that, then `liza resume`" in shell.ok("status")

        assert "acme is tried again" in shell.ok("resume")

        with team.process("coder-1"), team.process("reviewer-1"):
            team.until(lambda state: state.status_of("t1") is Status.MERGED)
        assert len(alerts(team)) == 1

    @pytest.mark.parametrize("ending", ["quota", "auth"])
    def test_the_fallback_takes_over_with_the_work_kept(self, tmp_path: Path, ending: str) -> None:
        """In the same turn where the quota ends in the middle of the work; afterwards from the start."""
        player = [sys.executable, "-S", player_file, str(tmp_path / "outside" / "script")]
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
        team = ScriptedTeam(tmp_path, script, agents=agents)
        intent = f"```liza\n{json.dumps(by_default('checkpoint', 't1')['answer'])}\n```"
        shut = {"ending": ending, "why": "no more", "reset_in": 3600}
        half: dict[str, Any] = {"step": "implement", "files": {"half.txt": "half\n"}, "reply": "", **shut}
        runs_of_acme = [{"step": "checkpoint", "reply": intent}, half]
        recording.write_text(
            json.dumps({"runs": [{"role": "coder", "task": "t1", **run} for run in runs_of_acme]})
        )
        team.task("t1")

        team.turns("coder-1", "reviewer-1")
        team.task("t2")
        team.turns("coder-1", "reviewer-1")

        assert (team.status("t1"), team.status("t2")) == (Status.MERGED, Status.MERGED)
        assert team.merged("half.txt") == "half"
        assert runs(team) == 2 + 2 + 3  # two of acme's, then only the fallback's
        assert "stands in meanwhile (agents.fallback)" in Shell(team.user.directory).ok("status")
        assert "stands in meanwhile" in alerts(team)[0]
        kinds = {one.kind for one in team.state.spend.kinds}
        assert kinds >= {"checkpoint command", "implement command"}

    def test_a_limit_of_one_provider_does_not_stop_another(self, tmp_path: Path) -> None:
        """A reviewer with another agent goes on."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turn("coder-1")
        agents = team.state.config.agents
        theirs = agents.replace(overrides={"coder": agents.default.replace(provider="acme")})
        down = budget.ProviderRejection(ProviderState.EXHAUSTED, "used up")

        def make(state: State) -> State:
            state = state.replace(config=state.config.replace(agents=theirs))
            return budget.with_rejection(state, "acme", "coder-1", down, at=utc_now(), chance=0)

        team.board.update(Change("human", "test", make))
        team.task("t2")

        assert team.turn("coder-1") is AfterTurn.WAIT
        team.turns("reviewer-1")
        assert (team.status("t1"), team.status("t2")) == (Status.MERGED, Status.IDLE)


def test_a_whole_run_stops_at_its_budget_and_says_so(tmp_path: Path) -> None:
    """`liza run --until-idle` ends with 3 at the cap, and with 0 once there is enough."""
    team = ScriptedTeam(tmp_path, dear(), budget={"run_usd": 1})
    shell = Shell(team.user.directory)

    def run() -> int:
        return LizaProcess("run", "--until-idle", cwd=team.user.directory).wait(PATIENCE)

    assert run() == 3
    assert runs(team) == 1
    shell.ok("answer", "budget", "30")
    assert run() == 0
    assert team.status() is Status.MERGED
