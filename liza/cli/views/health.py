"""What a doctor says about the facts of a machine and a project: a mark, a sentence, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from liza.cli.views.hosts import HostRow
from liza.system.disk_space import DiskSpace

MIN_PYTHON: Final = (3, 11)
MIN_GIT: Final = (2, 38)  # the first that merges without a checkout
MIN_WATCHES: Final = 8192  # directories that somebody may watch; editors use thousands
MIN_INSTANCES: Final = 64  # programs that watch; each worker is one
MIN_OPEN_FILES: Final = 256
MIN_FREE_BYTES: Final = 1 << 30  # bytes; below it worktrees and transcripts no longer fit
MAX_SKEW: Final = 2.0  # seconds between the clock and the time that the disk gives to a file


class HealthMark(StrEnum):
    """How it stands: well, worth a look, or in the way of a run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class HealthFinding(NamedTuple):
    what: str
    mark: HealthMark
    sentence: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.mark:<5} {self.what:<12} {self.sentence}{f'; {self.do}' if self.do else ''}"


@dataclass(frozen=True)
class MachineFacts:
    """What was found on the machine; None is what could not be found out."""

    python: tuple[int, ...]
    git: tuple[int, ...]  # empty where there is none
    obstacle: str | None  # to a sandbox
    namespaces: int | None  # user namespaces that may be made
    exchanges: bool  # whether two files can change names in one step
    watches: int | None
    instances: int | None
    open_files: int
    programs: Mapping[str, str]  # coding programs and their versions
    keys: tuple[str, ...]  # names of variables that hold one
    space: DiskSpace
    skew: float


class GateHealth(NamedTuple):
    """One of the project's commands on what work is based on."""

    sentence: str
    is_blocking: bool
    likely: str = ""


@dataclass(frozen=True)
class ProjectFacts:
    """What was found in the project."""

    trouble: str | None  # with the board
    is_writable: bool
    sandbox: str | None  # why agents run free
    refused: str | None  # why a run would not start
    holder: str | None  # of the supervisor's lock, as its file says
    real_holder: int | None  # as the kernel says
    orphans: tuple[str, ...]  # workers without a supervisor
    leftovers: tuple[str, ...]  # processes of agents without a worker
    stale: tuple[str, ...]  # tasks that are over and have a worktree
    salvages: int
    has_identity: bool
    integration: str
    integration_at: str | None
    has_commit: bool
    checked_out: str | None  # where the user has the integration branch
    has_agent: bool
    agent_trouble: str | None  # why its program could not be started
    switches: tuple[str, ...]
    # What they come to on the base; None where that was not tried.
    gates: tuple[GateHealth, ...] | None = None
    hosts: tuple[HostRow, ...] = ()  # that share the board
    latency: float | None = None  # seconds to a board on a server and back; None: it is here
    board_skew: float = 0.0  # seconds that this clock is ahead of the board's
    remote_seconds: float | None = None  # that it took to ask the remote everything; None: none is named
    remote_trouble: str | None = None


def _python(machine: MachineFacts) -> HealthFinding:
    version = ".".join(map(str, machine.python))
    if machine.python >= MIN_PYTHON:
        return HealthFinding("python", HealthMark.OK, version)
    return HealthFinding("python", HealthMark.FAIL, f"{version} is too old", "install 3.11 or newer")


def _git(machine: MachineFacts) -> HealthFinding:
    if not machine.git:
        return HealthFinding("git", HealthMark.FAIL, "there is none on the PATH", "install git 2.38 or newer")
    version = ".".join(map(str, machine.git))
    if machine.git >= MIN_GIT:
        return HealthFinding("git", HealthMark.OK, version)
    return HealthFinding(
        "git", HealthMark.FAIL, f"{version} cannot merge without a checkout", "install 2.38 or newer"
    )


def _bubblewrap(machine: MachineFacts) -> HealthFinding:
    if machine.obstacle is None:
        return HealthFinding("bubblewrap", HealthMark.OK, "agents can run in a sandbox; tried just now")
    what, _, do = machine.obstacle.partition("; ")
    return HealthFinding(
        "bubblewrap", HealthMark.WARN, f"agents cannot run in a sandbox, and have all your rights: {what}", do
    )


def _kernel(machine: MachineFacts) -> HealthFinding:
    if machine.namespaces == 0:
        do = "sysctl user.max_user_namespaces=10000"
        return HealthFinding(
            "kernel", HealthMark.WARN, "user namespaces are off, without which there is no sandbox", do
        )
    if not machine.exchanges:
        do = "keep the repository on a local file system"
        return HealthFinding("kernel", HealthMark.WARN, "the disk cannot exchange two files in one step", do)
    return HealthFinding("kernel", HealthMark.OK, "user namespaces and the exchange of files are there")


def _inotify(machine: MachineFacts) -> HealthFinding:
    low = {
        f"fs.inotify.max_user_{name}": (have, need)
        for name, have, need in (
            ("watches", machine.watches, MIN_WATCHES),
            ("instances", machine.instances, MIN_INSTANCES),
        )
        if have is not None and have < need
    }
    if not low:
        return HealthFinding(
            "inotify", HealthMark.OK, f"{machine.watches} watches, {machine.instances} instances"
        )
    said = ", ".join(f"{name} is {have}" for name, (have, _) in low.items())
    do = " ".join(f"sysctl {name}={need}" for name, (_, need) in low.items())
    return HealthFinding(
        "inotify", HealthMark.WARN, f"{said}; a worker that cannot watch looks every 20 seconds", do
    )


def _open_files(machine: MachineFacts) -> HealthFinding:
    if machine.open_files >= MIN_OPEN_FILES:
        return HealthFinding("open files", HealthMark.OK, f"{machine.open_files} at once")
    return HealthFinding(
        "open files", HealthMark.WARN, f"only {machine.open_files} at once", f"ulimit -n {MIN_OPEN_FILES}"
    )


def _programs(machine: MachineFacts) -> HealthFinding:
    if not machine.programs:
        do = "set agents.default.command, or install one"
        return HealthFinding("agents", HealthMark.WARN, "no coding program is on the PATH", do)
    return HealthFinding(
        "agents", HealthMark.OK, ", ".join(f"{name} {said}" for name, said in machine.programs.items())
    )


def _keys(machine: MachineFacts) -> HealthFinding:
    said = ", ".join(machine.keys) or "none is set; programs that are logged in need none"
    return HealthFinding("keys", HealthMark.OK, said)


def _disk(machine: MachineFacts) -> HealthFinding:
    if machine.space.free >= MIN_FREE_BYTES:
        return HealthFinding("disk", HealthMark.OK, str(machine.space))
    do = "make room; `liza salvage list` shows what is kept"
    return HealthFinding("disk", HealthMark.FAIL, f"only {machine.space}", do)


def _clock(machine: MachineFacts) -> HealthFinding:
    if abs(machine.skew) <= MAX_SKEW:
        return HealthFinding("clock", HealthMark.OK, f"{abs(machine.skew):.2f} s beside that of the disk")
    how = "behind" if machine.skew > 0 else "ahead of"
    sentence = f"the clock is {abs(machine.skew):.0f} s {how} that of the disk"
    return HealthFinding(
        "clock", HealthMark.WARN, sentence, "set both, as by NTP: leases and signs of life compare them"
    )


def _board(project: ProjectFacts) -> HealthFinding:
    if project.trouble is None and not project.is_writable:
        do = "look at its rights, and at how it is mounted"
        return HealthFinding(
            "board", HealthMark.FAIL, ".liza cannot be written to, so that nothing can run", do
        )
    if project.trouble is None:
        return HealthFinding("board", HealthMark.OK, "it is valid")
    return HealthFinding(
        "board", HealthMark.FAIL, project.trouble.splitlines()[0], "`liza validate` says it all"
    )


def _sandbox(project: ProjectFacts) -> HealthFinding:
    if project.refused:
        return HealthFinding("sandbox", HealthMark.FAIL, f"`liza run` would not start: {project.refused}")
    if project.sandbox:
        return HealthFinding("sandbox", HealthMark.WARN, project.sandbox)
    return HealthFinding("sandbox", HealthMark.OK, "agents and gates run in it")


def _lock(project: ProjectFacts) -> HealthFinding:
    if project.holder is None:
        return HealthFinding("supervisor", HealthMark.OK, "none is running here")
    real = project.real_holder
    if real is None or f"process {real} " in f"{project.holder} ":
        return HealthFinding("supervisor", HealthMark.OK, f"{project.holder} is running")
    sentence = f"the lock says {project.holder}, and process {real} has it"
    return HealthFinding("supervisor", HealthMark.FAIL, sentence, f"look at it (`ps {real}`) and end it")


def _processes(project: ProjectFacts) -> HealthFinding:
    left = (*project.orphans, *project.leftovers)
    if not left:
        return HealthFinding("processes", HealthMark.OK, "nothing is left of earlier runs")
    return HealthFinding(
        "processes", HealthMark.WARN, f"left by an earlier run: {', '.join(left)}", "`liza recover` ends them"
    )


def _worktrees(project: ProjectFacts) -> HealthFinding:
    if not project.stale:
        return HealthFinding("worktrees", HealthMark.OK, "none is stale")
    sentence = f"of tasks that are over: {', '.join(project.stale)}"
    return HealthFinding(
        "worktrees", HealthMark.WARN, sentence, "`liza recover` saves what is in them and removes them"
    )


def _salvage(project: ProjectFacts) -> HealthFinding:
    if not project.salvages:
        return HealthFinding("salvage", HealthMark.OK, "nothing waits")
    return HealthFinding(
        "salvage", HealthMark.OK, f"{project.salvages} saved; `liza salvage list` shows them"
    )


def _identity(project: ProjectFacts) -> HealthFinding:
    if project.has_identity:
        return HealthFinding("identity", HealthMark.OK, "git knows your name")
    do = "git config user.name and user.email"
    return HealthFinding(
        "identity", HealthMark.WARN, "git has no name for you, so commits are signed by Liza", do
    )


def _integration(project: ProjectFacts) -> HealthFinding:
    name = project.integration
    if project.checked_out:
        do = f"git -C {project.checked_out} switch --detach"
        return HealthFinding(
            "integration", HealthMark.FAIL, f"{name} is checked out in {project.checked_out}", do
        )
    if not project.has_commit:
        do = "make one, as by `git commit --allow-empty -m 'the beginning'`"
        return HealthFinding("integration", HealthMark.FAIL, "there is no commit yet to begin at", do)
    if project.integration_at is None:
        return HealthFinding("integration", HealthMark.OK, f"{name} is made when a run begins")
    return HealthFinding("integration", HealthMark.OK, f"{name} is at {project.integration_at[:12]}")


def _agent(project: ProjectFacts) -> HealthFinding:
    if project.agent_trouble:
        why, _, do = project.agent_trouble.partition("; ")
        return HealthFinding("settings", HealthMark.FAIL, why, do)
    if project.has_agent:
        return HealthFinding("settings", HealthMark.OK, "an agent is set up")
    return HealthFinding(
        "settings", HealthMark.WARN, "no agent is set up", "set agents.default.command in liza.yaml"
    )


def _switches(project: ProjectFacts) -> HealthFinding:
    if not project.switches:
        return HealthFinding("switches", HealthMark.OK, "none is thrown")
    return HealthFinding(
        "switches", HealthMark.WARN, f"thrown: {', '.join(project.switches)}", "`liza resume` takes it back"
    )


def _hosts(project: ProjectFacts) -> HealthFinding:
    here = f"the board is {1000 * (project.latency or 0):.0f} ms away"
    off = abs(project.board_skew)
    concerns = [f"{host.name} {one}" for host in project.hosts for one in host.concerns]
    if off > MAX_SKEW:
        how = "ahead of" if project.board_skew > 0 else "behind"
        concerns.append(f"the clock here is {off:.0f} s {how} its")
    if concerns:
        do = "look at these machines, and set clocks as by NTP"
        return HealthFinding("hosts", HealthMark.WARN, f"{here}; {'; '.join(concerns)}", do)
    return HealthFinding("hosts", HealthMark.OK, "; ".join([here, *map(str, project.hosts)]))


def _remote(project: ProjectFacts) -> HealthFinding:
    if project.remote_trouble:
        do = "mend it there, or `remote` in liza.yaml"
        return HealthFinding("remote", HealthMark.FAIL, project.remote_trouble, do)
    took = f"{1000 * (project.remote_seconds or 0):.0f} ms"
    return HealthFinding("remote", HealthMark.OK, f"it has this history and lets you push, asked in {took}")


def _gates(project: ProjectFacts) -> HealthFinding:
    if project.gates is None:
        return HealthFinding(
            "gates", HealthMark.OK, "not tried on what work is based on", "`liza run` tries them first"
        )
    if not project.gates:
        do = "set gates.test in liza.yaml"
        return HealthFinding(
            "gates", HealthMark.WARN, "there is no test command, so nothing runs what is merged", do
        )
    bad = [gate for gate in project.gates if gate.is_blocking]
    said = "; ".join(gate.sentence for gate in bad or project.gates)
    return HealthFinding(
        "gates", HealthMark.FAIL if bad else HealthMark.OK, said, bad[0].likely if bad else ""
    )


MACHINE_CHECKS: Final[tuple[Callable[[MachineFacts], HealthFinding], ...]] = (
    *(_python, _git, _bubblewrap, _kernel, _inotify, _open_files, _programs, _keys, _disk, _clock),
)
PROJECT_CHECKS: Final[tuple[Callable[[ProjectFacts], HealthFinding], ...]] = (
    *(_board, _sandbox, _lock, _processes, _worktrees, _salvage, _identity, _integration, _agent, _gates),
    _switches,
)


def diagnose(machine: MachineFacts, project: ProjectFacts | None) -> list[HealthFinding]:
    """Return a finding for everything that was looked at."""
    findings = [
        *(check(machine) for check in MACHINE_CHECKS),
        *((check(project) for check in PROJECT_CHECKS) if project else ()),
        *([_hosts(project)] if project and project.latency is not None else []),
        *([_remote(project)] if project and project.remote_seconds is not None else []),
    ]
    if machine.programs or project is None or not project.has_agent:
        return findings
    # A program on the PATH is wanted only where the settings name no agent.
    unused = HealthFinding("agents", HealthMark.OK, "no coding program is on the PATH; the settings name one")
    return [unused if finding.what == unused.what else finding for finding in findings]
