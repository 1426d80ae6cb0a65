"""Whole runs by several hosts: 4 machines of 8 coders on 200 tasks, against the ideal schedule."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from liza.domain.model import Status
from liza.domain.report_words import tally_of
from scripts.benchmark.schedule import Team, ideal
from scripts.benchmark.tables import Table
from tests.support.host_processes import HostPark
from tests.support.host_site import Site
from tests.support.network import why_impossible
from tests.support.postgres_server import PostgresServer
from tests.support.scripted_agent import by_default, plan, planned

LEASE: Final = 120  # seconds: on a machine that is too small for the team, nobody is taken for dead


class Fleet(NamedTuple):
    hosts: int
    coders: int  # of each host
    reviewers: int
    tasks: int
    step: float  # seconds that an agent takes

    @property
    def team(self) -> Team:
        return Team(self.hosts * self.coders, self.hosts * self.reviewers)


class Ended(NamedTuple):
    work: float  # seconds from the first claim to the last merge
    merged: int
    cpu: float  # seconds of the hosts, their workers and agents


def fleet_script(fleet: Fleet) -> dict[str, Any]:
    """Return what the agents do: each step takes its time, and every task adds a file."""
    names = [f"t{number}" for number in range(fleet.tasks)]
    slow = {"sleep": fleet.step}
    return {
        "plan": plan(*map(planned, names)),
        "checkpoint": {**slow, "answer": {"intent": "add a file"}},
        "review": {**slow, **by_default("review", "")},
        **{f"implement {name}": {**slow, **by_default("implement", name)} for name in names},
    }


def run_fleet(fleet: Fleet, server: PostgresServer, place: Path) -> Ended:
    """Let the hosts work, each in a network of its own where that is allowed."""
    place.mkdir()
    os.environ["LIZA_BOARD"] = f"{server.address}#site"
    slots = f"planner=1,coder={fleet.coders},reviewer={fleet.reviewers}"
    before = _cpu_of_children()
    with ExitStack() as stack:
        if why_impossible():
            limits = {"lease_seconds": LEASE, "max_plan_tasks": 200}
            park = HostPark(place, os.environ["LIZA_BOARD"], fleet_script(fleet), limits=limits)
            hosts = [
                stack.enter_context(park.host(f"h{number}", "--slots", slots))
                for number in range(fleet.hosts)
            ]
        else:
            site = park = Site(place, server, fleet_script(fleet), lease=LEASE)
            stack.enter_context(site.network)
            hosts = [site.machine(stack, f"h{number}", "--slots", slots) for number in range(fleet.hosts)]
        for host in hosts:
            host.wait()
        state, work = park.state, _work(park)
        park.board.close()
    del os.environ["LIZA_BOARD"]
    merged = tally_of(state).by_status.get(Status.MERGED, 0)  # those that left the board included
    return Ended(work, merged, _cpu_of_children() - before)


def _work(park: HostPark) -> float:
    """Return the seconds from the first claim of a task to the last merge, by the board's clock."""
    found = [
        (put.get("status"), entry.at.timestamp())
        for entry in park.board.entries(after=1)
        for put in entry.put.get("tasks", {}).values()
    ]
    claims, merges = (
        [at for status, at in found if status == one] for one in (Status.WORKING, Status.MERGED)
    )
    return max(merges) - min(claims)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fleet_table(fleet: Fleet, ended: Ended) -> Table:
    least = ideal([None] * fleet.tasks, fleet.team, fleet.step)
    table = Table(
        f"   {fleet.hosts} hosts of {fleet.coders} coders and {fleet.reviewers} reviewers, "
        f"{fleet.step:g} s a step, one PostgreSQL and one bare remote",
        ("tasks", "merged", "seconds", "ideal", "% of ideal", "CPU s a task", "CPU s by core"),
    )
    cores = os.cpu_count() or 1
    table.add(
        fleet.tasks, ended.merged, ended.work, least, 100 * least / ended.work,
        ended.cpu / fleet.tasks, ended.cpu / cores,
    )  # fmt: skip
    table.notes.append("first claim to last merge; no run of these processes is shorter than the last column")
    if why := why_impossible():
        table.notes.append(f"on loopback: {why}")
    return table
