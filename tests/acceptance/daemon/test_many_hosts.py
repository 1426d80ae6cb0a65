"""Hosts in network namespaces of their own, one PostgreSQL, one bare remote: killed, cut off, verified."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from liza.domain import lifecycle as e
from liza.domain.model import Actor, Role, Status
from liza.domain.shared_refs import token_digest
from liza.errors import Refused
from liza.workflow.transition import apply
from tests.support.host_site import LEASE, Site
from tests.support.network import why_impossible
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.repos import Hand
from tests.support.scripted_agent import by_default, plan, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.domain.model import Lease

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1800)]
TASKS: Final = int(os.environ.get("LIZA_HOSTS_TASKS") or 60)
INTEGRATION: Final = "refs/heads/liza/integration"


def plan_of(count: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - acts of the script
    return {"plan": plan(*(planned(f"t{number}") for number in range(1, count + 1))), **more}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if why := why_impossible() or (None if find_programs() else WHAT_IS_MISSING):
        pytest.skip(why)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def make_site(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Site]]:
    monkeypatch.setenv("LIZA_BOARD", f"{server.address}#site")
    with ExitStack() as stack:

        def make(script: dict[str, Any], **settings: Any) -> Site:  # noqa: ANN401
            site = Site(tmp_path, server, script, **settings)
            stack.enter_context(site.network)
            return site

        yield make


def judge(site: Site, count: int) -> None:
    """Check that everything was merged once, with its content, and that the history is what it says."""
    state = site.state
    assert {task.status for task in state.tasks.values()} == {Status.MERGED}, site.told()
    assert (state.goal.is_over, len(state.tasks)) == (True, count)
    files = dict.fromkeys(site.git("ls-tree", "--name-only", INTEGRATION).splitlines())
    assert set(files) == {"README", "liza.yaml", *(f"{name}.txt" for name in state.tasks)}
    for name in state.tasks:
        assert site.git("show", f"{INTEGRATION}:{name}.txt") == name
    merges = site.git("log", "--first-parent", "--merges", "--format=%s", INTEGRATION).splitlines()
    assert sorted(line.split()[1].strip(":") for line in merges) == sorted(state.tasks)
    site.git("fsck", "--no-dangling")
    assert site.shell.ok("verify") == f"VERIFIED: {count} merges\n"
    assert site.shell.ok("validate").startswith("VALID")


def test_three_hosts_bring_all_tasks_to_their_merge(
    make_site: Callable[..., Site], count: Callable[[str, int], None]
) -> None:
    """One host is killed, one is cut off and comes back, the server is killed twice: all is verified."""
    site = make_site(plan_of(TASKS))
    with ExitStack() as stack:
        hosts = {name: site.machine(stack, name, "--slots", "planner=1,coder=2,reviewer=1") for name in "abc"}
        parts = [TASKS * part // 6 for part in range(1, 6)]
        site.eventually(lambda: site.merged() >= parts[0])
        site.server.kill()
        site.server.start()
        site.eventually(lambda: site.merged() >= parts[1])
        killed = site.network.kill_machine("c")
        site.eventually(lambda: site.merged() >= parts[2])
        site.network.cut("b")
        site.eventually(lambda: site.merged() >= parts[3])
        site.server.kill()
        site.server.start()
        site.network.join("b")
        site.eventually(lambda: site.state.goal.is_over)
        assert [hosts[name].wait(120) for name in "ab"] == [0, 0], site.told()
    judge(site, TASKS)
    count("tasks merged by three hosts", TASKS)
    count("processes killed with their machine", killed)
    count("kills of the server, and machines cut off", 3)


class Cut(NamedTuple):
    """How many seconds after the cut each was seen."""

    fenced: float  # no agent ran any more on the machine that was cut off
    taken: float  # the others could take its task


def cut_and_watch(site: Site, name: str, held: Lease) -> Cut:
    site.network.cut(name)
    began, seen = time.monotonic(), dict[str, float]()
    while len(seen) < len(Cut._fields):
        past = time.monotonic() - began
        assert past < 10 * LEASE, site.told()
        if not site.network.agents(name):
            seen.setdefault("fenced", past)
        lease = site.state.tasks["t1"].lease
        if lease is None or lease.token != held.token:
            seen.setdefault("taken", past)
        time.sleep(0.02)
    return Cut(**seen)


def push(site: Site, name: str, *words: str) -> str:
    """Return what git says to a push from the clone of *name* that has to be refused."""
    command = ["git", "-C", str(site.shell_of(name).directory), "push", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    return done.stderr


def test_a_host_that_is_cut_off_stops_before_others_go_on(
    make_site: Callable[..., Site], tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    """Its agent ends before the lease ends elsewhere; what it writes or pushes later is refused."""
    hold, mark = tmp_path / "hold", tmp_path / "mark"
    act = by_default("implement", "t1")
    site = make_site(plan_of(1, implement=[{**act, "run": f"touch {mark}", "until": str(hold)}, act]))
    with ExitStack() as stack:
        site.machine(stack, "a", "--slots", "planner=1,reviewer=1")
        site.machine(stack, "b", "--slots", "coder=1")
        site.eventually(mark.exists)
        held = site.state.tasks["t1"].lease
        assert held
        assert site.network.agents("b")
        cut = cut_and_watch(site, "b", held)
        assert cut.fenced < cut.taken

        late = e.Report(commit=site.git("rev-parse", INTEGRATION))
        by = Actor(role=Role.CODER, id=held.holder, token=held.token)
        with pytest.raises(Refused):
            site.board.update(apply(late, to="t1", by=by, at=site.board.now()))
        said = push(site, "b", str(site.remote), f"HEAD:refs/heads/liza/t1/{token_digest(held.token)}")
        assert "so that the push comes too late" in said
        moved = Hand(site.shell_of("b").directory).commit({"late.txt": "late"})
        said = push(site, "b", "-f", str(site.remote), f"{moved}:{INTEGRATION}")
        assert "no task of the board is being merged as" in said

        hold.touch()
        site.network.join("b")
        site.eventually(lambda: site.state.goal.is_over)
    judge(site, 1)
    count(f"seconds after the cut, of a lease of {LEASE}: the agent had ended", round(cut.fenced))
    count(f"seconds after the cut, of a lease of {LEASE}: others could go on", round(cut.taken))


@pytest.mark.skipif(shutil.which("faketime") is None, reason="there is no faketime here")
def test_clocks_that_are_three_hours_off_end_no_lease(make_site: Callable[..., Site]) -> None:
    site = make_site(plan_of(4))
    with ExitStack() as stack:
        hosts = [
            site.machine(stack, "a", "--slots", "planner=1,coder=1", clock="+3h"),
            site.machine(stack, "b", "--slots", "coder=1,reviewer=1", clock="-3h"),
        ]
        site.eventually(lambda: site.state.goal.is_over)
        assert [host.wait(120) for host in hosts] == [0, 0], site.told()
    judge(site, 4)
    events = {entry.event for task in site.state.tasks.values() for entry in task.history}
    assert "reclaim" not in events, events
    assert "the clock of this machine is 10800 s ahead of" in site.told()


def test_a_remote_that_is_away_or_full_is_waited_for(make_site: Callable[..., Site]) -> None:
    site = make_site(plan_of(3))
    own = site.hook.read_text()
    with ExitStack() as stack:
        hosts = [site.machine(stack, name, "--slots", "planner=1,coder=1,reviewer=1") for name in "ab"]
        site.eventually(lambda: site.state.tasks)
        site.hook.write_text("#!/bin/sh\necho 'No space left on device' >&2\nexit 1\n")
        site.eventually(lambda: "No space left" in site.alerts() or "is full" in site.alerts())
        site.remote.rename(site.directory / "away.git")
        site.eventually(lambda: "cannot be reached" in site.alerts())
        (site.directory / "away.git").rename(site.remote)
        site.hook.write_text(own)
        site.eventually(lambda: site.state.goal.is_over)
        assert [host.wait(120) for host in hosts] == [0, 0], site.told()
    judge(site, 3)
    told = [line for line in site.alerts().splitlines() if "the remote origin" in line]
    assert len(told) <= 4, told  # one sentence for each thing that was wrong, however many met it
