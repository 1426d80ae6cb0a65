"""Machines that share a board: they join, lead, work, are lost, and say what is wrong before any work."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

import liza
from liza.board.postgres import server
from liza.board.protocol import SUPERVISOR_NAME
from liza.domain.changes import Change
from liza.domain.config import Switch
from liza.domain.model import Status, WorkerStatus
from liza.system.platform import DEAD_STATES
from liza.system.process import process_of
from tests.support.host_processes import PATIENCE, HostPark
from tests.support.hosts import bare_repository
from tests.support.postgres_proxy import PostgresProxy
from tests.support.postgres_server import PostgresServer
from tests.support.repos import Hand, Home
from tests.support.shell import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.hosts


@pytest.fixture
def park(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> HostPark:
    monkeypatch.setenv("LIZA_BOARD", address)
    return HostPark(tmp_path, address, {})


def test_one_host_is_a_run(park: HostPark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the collector of traces that it should tell refuses every connection."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", nowhere)
    with park.host("alpha", "--metrics", "0") as alpha:
        park.eventually(lambda: park.board.presence.hosts() and park.leader() == "alpha")
        sign = park.board.presence.hosts()[0]
        shown = park.shell.ok("status")
        (place,) = re.findall(r"Metrics are at (http://127\.0\.0\.1:\d+/metrics)", park.told())
        with urllib.request.urlopen(place) as answer:  # noqa: S310 - it is on this machine
            scraped = answer.read().decode()
        park.eventually(lambda: alpha.poll() is not None)
        assert alpha.returncode == 0, park.told()
    assert {"version", "git", "labels", "skew", "leads"} <= sign.facts.keys()
    assert "Hosts     alpha: leads," in shown
    assert 'liza_host_clock_skew_seconds{host="alpha"}' in scraped
    assert 'liza_workers_alive{role="coder"}' in scraped
    assert park.state.tasks["t1"].status is Status.MERGED
    assert park.told().count(f"no traces reach {nowhere}") == 1
    names = {"planner-alpha-1", "coder-alpha-1", "reviewer-alpha-1"}
    assert {agent.id: agent.host for agent in park.state.agents.values()} == dict.fromkeys(names, "alpha")
    assert park.shell_of("alpha").ok("verify").startswith("VERIFIED: 1 merge")
    assert not park.board.presence.is_held(SUPERVISOR_NAME)
    # It ended as it should, so that nobody is told that it is silent.
    assert park.board.presence.hosts() == ()
    assert "has said nothing" not in park.shell.ok("status")


def test_another_leads_where_the_leader_dies(park: HostPark) -> None:
    park.board.switches.throw(Switch.PAUSE, "nobody works here")
    with park.host("alpha") as alpha:
        park.eventually(lambda: park.leader() == "alpha")
        with park.host("beta", "--slots", "coder=2", "--label", "gpu") as beta:
            park.eventually(lambda: {sign.name for sign in park.board.presence.hosts()} == {"alpha", "beta"})
            # Nobody is started under PAUSE, but slots are known.
            park.eventually(lambda: "coder-beta-2" in park.state.agents)
            assert park.state.agents["coder-beta-2"].labels == ("gpu",)
            assert park.leader() == "alpha"
            alpha.send_signal(signal.SIGKILL)
            alpha.wait(PATIENCE)
            park.eventually(lambda: park.leader() == "beta")
            park.eventually(lambda: park.state.agents["coder-alpha-1"].status is WorkerStatus.STOPPED)
            assert park.state.agents["coder-beta-1"].status is not WorkerStatus.STOPPED
            assert {sign.name for sign in park.board.presence.hosts()} == {"alpha", "beta"}
            assert "the host alpha is gone" in "".join(one.says for one in park.board.alerts.after(0))
            park.board.switches.throw(Switch.ABORT, "enough")
            assert beta.wait(PATIENCE) == 4


def with_remote(remote: str | None) -> Change:
    return Change("human", "move", lambda one: one.replace(config=one.config.replace(remote=remote)))


class TestBeforeAnyWork:
    """Each is one sentence and an exit code, and nothing is on the board afterwards."""

    def refused(
        self, park: HostPark, *words: str, where: str = "alpha", **environment: str
    ) -> tuple[int, str]:
        before = park.state.revision
        shell = park.shell_of(where)
        done = shell("host", "--name", "alpha", "--no-baseline", *words, user=None, **environment)
        assert done.err.startswith("liza: "), done
        assert (done.err.count("\n"), "Traceback" in done.err) == (1, False), done.err
        assert park.state.revision == before
        assert park.board.presence.hosts() == () or not park.board.presence.is_held("host-alpha")
        return done.code, done.err

    def test_a_wrong_word(self, park: HostPark) -> None:
        wrong = {
            "--slots coder": "'coder' is no number of workers; give planner=N, coder=N, reviewer=N",
            "--slots coder=1,coder=2": "'coder=2' is no number of workers",
            "--slots boss=1": "'boss=1' is no number of workers",
            "--slots coder=0": "--slots coder=0 offers nobody",
            "--label a/b": "--label: 'a/b' is not an id",
            "--name A.b": "'A.b' is no name of a host",
            "--once --stay": "give one of them",
            "--metrics here": "--metrics here is no place to listen",
        }
        for words, said in wrong.items():
            code, err = self.refused(park, *words.split())
            assert (code, said in err) == (2, True), err

    def test_a_board_that_cannot_be_used(self, park: HostPark, postgres: PostgresServer) -> None:
        board = park.address.partition("#")[2]
        postgres.sql(f"CREATE ROLE \"r{board}\" LOGIN PASSWORD 'looks'")
        park.shell.ok("board", "grant", "reader", f"r{board}")
        reader = postgres.address_of(f"r{board}", "looks")
        wrong = {
            postgres.address_of("owner", "wrong"): "the password is wrong",
            f"{postgres.address}none": "there is no such database",
            postgres.address_of("owner", port=1): "cannot be reached",
            f"{postgres.address}#nobody-made-it": "there is no board at",
            f"{reader}#{board}": "that user lacks a right",
        }
        for number, (address, said) in enumerate(wrong.items()):
            code, err = self.refused(park, "--board", address, where=f"clone{number}")
            assert (code, said in err) == (1, True), (address, err)
            assert postgres.password not in err
        assert self.refused(park, "--board", "mailto:ada", where="clone9")[0] == 2

    def test_a_server_that_is_too_old(self, park: HostPark, monkeypatch: pytest.MonkeyPatch) -> None:
        park.board.presence.hosts()  # its own sessions are there already
        park.board.read()
        monkeypatch.setattr(server, "OLDEST_SERVER", 990000)
        code, err = self.refused(park)
        assert (code, "and Liza needs 99 or newer; upgrade the server" in err) == (1, True), err

    def test_an_old_git(self, park: HostPark, tmp_path: Path) -> None:
        old = tmp_path / "old"
        old.mkdir()
        own = shutil.which("git")
        answer = 'case " $* " in *" version "*) echo git version 2.30.2 ;;'
        (old / "git").write_text(f'#!/bin/sh\n{answer} *) exec {own} "$@" ;; esac\n')
        (old / "git").chmod(0o755)
        code, err = self.refused(park, PATH=f"{old}{os.pathsep}{os.environ['PATH']}")
        said = "git 2.30 cannot merge without a checkout; install 2.38 or newer on this machine"
        assert (code, said in err) == (1, True), err

    def test_a_board_that_names_no_remote(self, park: HostPark) -> None:
        park.board.update(with_remote(None))
        with park.board.presence.hold("host-beta", at=park.board.now()):
            park.board.presence.advertise("beta", {"version": liza.__version__})
            code, err = self.refused(park)
        said = "beta works on this board, and it names no `remote` by which code travels between hosts"
        assert (code, said in err) == (2, True), err

    def test_a_remote_of_another_history_or_that_is_none(self, park: HostPark, tmp_path: Path) -> None:
        other = Home(tmp_path / "other")
        other.git("checkout", "-q", "--orphan", "elsewhere")
        other.commit({"x": "another thing"})
        other.git("push", "-q", str(bare_repository(tmp_path / "other.git").directory), "elsewhere:main")
        wrong = {
            str(tmp_path / "other.git"): "has another history than this repository",
            str(tmp_path / "none.git"): "cannot be reached",
        }
        for remote, said in wrong.items():
            park.board.update(with_remote(remote))
            code, err = self.refused(park)
            assert (code, said in err) == (1, True), err

    def test_somebody_else_s_run(self, park: HostPark) -> None:
        """Who leads already is not disturbed: `liza run` wants to be alone, and says who is there."""
        with park.board.presence.hold(SUPERVISOR_NAME, at=park.board.now()):
            done = park.shell_of("alpha")("run", "--no-baseline")
        assert (done.code, done.err.count("\n")) == (1, 1), done
        assert "already running" in done.err

    def test_a_board_of_files(self, park: HostPark, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("LIZA_BOARD")
        there = park.shell_of("alone")
        there.ok("init", "another thing", "--no-baseline")
        done = there("host")
        assert (done.code, "`liza run` works on it" in done.err) == (2, True), done

    def test_another_host_liza_or_repository(self, park: HostPark) -> None:
        with park.board.presence.hold("host-old", at=park.board.now()):
            park.board.presence.advertise("old", {"version": "0.0.9"})
            code, err = self.refused(park)
            assert (code, "the host old runs Liza 0.0.9, and this one is" in err) == (1, True), err
        with park.board.presence.hold("host-alpha", at=park.board.now()):
            done = park.shell_of("beta")("host", "--name", "alpha")
        assert (done.code, "a host called alpha works on this board already" in done.err) == (1, True), done
        park.board.update(
            Change(
                "human", "begin", lambda one: one.replace(integration=one.integration.replace(base="a" * 40))
            )
        )
        code, err = self.refused(park)
        assert (code, "does not have the commit aaaaaaaaaaaa that the board began at" in err) == (1, True)

    def test_a_schema_of_a_newer_liza(self, park: HostPark) -> None:
        with PostgresServer(fsync="off") as server:
            park.shell.ok("board", "copy", park.address, f"{server.address}#newer")
            server.sql("INSERT INTO liza.migration (version) VALUES (99)")
            code, err = self.refused(park, "--board", f"{server.address}#newer", where="beta")
        assert (code, "is of version 99, and this Liza knows" in err) == (1, True), err

    @pytest.mark.skipif(shutil.which("faketime") is None, reason="there is no faketime here")
    def test_a_clock_that_is_off_is_told(self, park: HostPark) -> None:
        park.board.switches.throw(Switch.ABORT, "only look")
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = ["-m", "liza", "-C", str(park.shell_of("alpha").directory), "host", "--no-baseline"]
        done = subprocess.run(
            ["faketime", "-f", "+3h", sys.executable, *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 4, done
        assert "the clock of this machine is 10800 s ahead of the board's" in done.stderr


def test_three_hosts_share_the_work_and_one_is_killed(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve tasks, three clones, one bare repository; the host that leads dies in the middle of its work."""
    monkeypatch.setenv("LIZA_BOARD", address)
    names = [f"t{number}" for number in range(1, 13)]
    tasks = [{"id": one, "description": f"do {one}", "done_when": [f"{one}.txt is there"]} for one in names]
    script: dict[str, Any] = {"plan": {"answer": {"tasks": tasks}}}
    script |= {
        f"implement {one}": {
            "write": {f"{one}.txt": f"{one}\n"},
            "sleep": 1.0,
            "answer": {"status": "done", "summary": f"Add {one}"},
        }
        for one in names
    }
    park = HostPark(tmp_path, address, script, limits={"lease_seconds": 12, "kept_worktrees": 0})
    with park.host("alpha") as alpha:
        park.eventually(lambda: park.leader() == "alpha")
        with park.host("beta") as beta, park.host("gamma") as gamma:
            park.eventually(lambda: len(park.board.presence.hosts()) == 3)
            park.eventually(lambda: merged(park) >= 2 and held_by(park, "alpha"))
            alpha.send_signal(signal.SIGKILL)
            alpha.wait(PATIENCE)
            assert (beta.wait(PATIENCE), gamma.wait(PATIENCE)) == (0, 0), park.told()
    assert {task.status for task in park.state.tasks.values()} == {Status.MERGED}
    authors = {task.authors[-1].split("-")[1] for task in park.state.tasks.values()}
    assert {"beta", "gamma"} <= authors
    for name in ("beta", "gamma"):
        assert park.shell_of(name).ok("verify").startswith("VERIFIED: 12 merges"), park.told()
    files = Hand(park.remote).git("ls-tree", "--name-only", "liza/integration").split()
    assert set(files) >= {f"{one}.txt" for one in names}
    assert park.shell.ok("validate").startswith("VALID")


def merged(park: HostPark) -> int:
    return [task.status for task in park.state.tasks.values()].count(Status.MERGED)


def held_by(park: HostPark, host: str) -> bool:
    return any(task.lease and f"-{host}-" in task.lease.holder for task in park.state.tasks.values())


def test_a_host_that_is_cut_off_stops_in_time_and_comes_back(
    tmp_path: Path,
    address: str,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    count: Callable[[str, int], None],
) -> None:
    monkeypatch.setenv("LIZA_BOARD", address)
    note = tmp_path / "note"
    long = {"note": str(note), "sleep": 600.0}
    quick = {
        "note": str(note),
        "write": {"t1.txt": "t1\n"},
        "answer": {"status": "done", "summary": "Add it"},
    }
    park = HostPark(tmp_path, address, {"implement": [long, quick]}, limits={"lease_seconds": 8})
    with PostgresProxy(postgres.port) as proxy:
        away = address.replace(f":{postgres.port}/", f":{proxy.port}/")
        with park.host("alpha", address=away) as alpha:
            park.eventually(note.exists)
            agent = int(note.read_text().split()[-1])
            with park.host("beta") as beta:
                park.eventually(lambda: len(park.board.presence.hosts()) == 2)
                proxy.cut()
                lease = park.state.tasks["t1"].lease
                assert lease is not None
                assert lease.holder == "coder-alpha-1"
                park.eventually(lambda: is_gone(agent))
                assert park.board.now() < lease.expires
                # Another takes it only when the lease is over, and is done with it.
                park.eventually(lambda: park.state.tasks["t1"].authors[-1:] == ("coder-beta-1",))
                assert park.board.now() >= lease.expires
                park.eventually(lambda: "beta leads" in (tmp_path / "beta.log").read_text())
                proxy.mend()
                assert beta.wait(PATIENCE) == 0, park.told()
            assert alpha.wait(PATIENCE) == 0, park.told()
    assert park.state.tasks["t1"].status is Status.MERGED
    assert park.state.agents["coder-alpha-1"].crashes == ()
    count("hosts cut off that stopped before their lease was over", 1)


def is_gone(pid: int) -> bool:
    process = process_of(pid)
    return process is None or process.state in DEAD_STATES
