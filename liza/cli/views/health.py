"""What a doctor says about the facts of a machine and a project: a mark, a sentence, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from liza.system.disk_space import Space

PYTHON: Final = (3, 11)
GIT: Final = (2, 38)  # the first that merges without a checkout
WATCHES: Final = 8192  # directories that somebody may watch; editors use thousands
INSTANCES: Final = 64  # programs that watch; each worker is one
OPEN_FILES: Final = 256
FLOOR: Final = 1 << 30  # bytes; below it worktrees and transcripts no longer fit
SKEW: Final = 2.0  # seconds between the clock and the time that the disk gives to a file


class Mark(StrEnum):
    """How it stands: well, worth a look, or in the way of a run."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    what: str
    mark: Mark
    sentence: str
    do: str = ""

    def __str__(self) -> str:
        return f"{self.mark:<5} {self.what:<12} {self.sentence}{f'; {self.do}' if self.do else ''}"


@dataclass(frozen=True)
class Machine:
    """What was found on the machine; None is what could not be found out."""

    python: tuple[int, ...]
    git: tuple[int, ...]  # empty where there is none
    obstacle: str | None  # to a cage
    namespaces: int | None  # user namespaces that may be made
    exchanges: bool  # whether two files can change names in one step
    watches: int | None
    instances: int | None
    open_files: int
    programs: Mapping[str, str]  # coding programs and their versions
    keys: tuple[str, ...]  # names of variables that hold one
    space: Space
    skew: float


class Gate(NamedTuple):
    """One of the project's commands on what work is based on."""

    sentence: str
    is_in_the_way: bool
    likely: str = ""


@dataclass(frozen=True)
class Project:
    """What was found in the project."""

    trouble: str | None  # with the board
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
    checked_out: str | None  # where the user has the integration branch
    has_agent: bool
    switches: tuple[str, ...]
    gates: tuple[Gate, ...] | None = None  # what they come to on the base; None where that was not tried


def _python(machine: Machine) -> Finding:
    version = ".".join(map(str, machine.python))
    if machine.python >= PYTHON:
        return Finding("python", Mark.OK, version)
    return Finding("python", Mark.FAIL, f"{version} is too old", "install 3.11 or newer")


def _git(machine: Machine) -> Finding:
    if not machine.git:
        return Finding("git", Mark.FAIL, "there is none on the PATH", "install git 2.38 or newer")
    version = ".".join(map(str, machine.git))
    if machine.git >= GIT:
        return Finding("git", Mark.OK, version)
    return Finding("git", Mark.FAIL, f"{version} cannot merge without a checkout", "install 2.38 or newer")


def _cage(machine: Machine) -> Finding:
    if machine.obstacle is None:
        return Finding("bubblewrap", Mark.OK, "agents can be caged; tried just now")
    what, _, do = machine.obstacle.partition("; ")
    return Finding(
        "bubblewrap", Mark.WARN, f"agents cannot be caged, and run with all your rights: {what}", do
    )


def _kernel(machine: Machine) -> Finding:
    if machine.namespaces == 0:
        do = "sysctl user.max_user_namespaces=10000"
        return Finding("kernel", Mark.WARN, "user namespaces are off, without which there is no cage", do)
    if not machine.exchanges:
        do = "keep the repository on a local file system"
        return Finding("kernel", Mark.WARN, "the disk cannot exchange two files in one step", do)
    return Finding("kernel", Mark.OK, "user namespaces and the exchange of files are there")


def _inotify(machine: Machine) -> Finding:
    low = {
        f"fs.inotify.max_user_{name}": (have, need)
        for name, have, need in (
            ("watches", machine.watches, WATCHES),
            ("instances", machine.instances, INSTANCES),
        )
        if have is not None and have < need
    }
    if not low:
        return Finding("inotify", Mark.OK, f"{machine.watches} watches, {machine.instances} instances")
    said = ", ".join(f"{name} is {have}" for name, (have, _) in low.items())
    do = " ".join(f"sysctl {name}={need}" for name, (_, need) in low.items())
    return Finding("inotify", Mark.WARN, f"{said}; a worker that cannot watch looks every 20 seconds", do)


def _open_files(machine: Machine) -> Finding:
    if machine.open_files >= OPEN_FILES:
        return Finding("open files", Mark.OK, f"{machine.open_files} at once")
    return Finding("open files", Mark.WARN, f"only {machine.open_files} at once", f"ulimit -n {OPEN_FILES}")


def _programs(machine: Machine) -> Finding:
    if not machine.programs:
        do = "set agents.default.command, or install one"
        return Finding("agents", Mark.WARN, "no coding program is on the PATH", do)
    return Finding("agents", Mark.OK, ", ".join(f"{name} {said}" for name, said in machine.programs.items()))


def _keys(machine: Machine) -> Finding:
    said = ", ".join(machine.keys) or "none is set; programs that are logged in need none"
    return Finding("keys", Mark.OK, said)


def _disk(machine: Machine) -> Finding:
    if machine.space.free >= FLOOR:
        return Finding("disk", Mark.OK, str(machine.space))
    do = "make room; `liza salvage list` shows what is kept"
    return Finding("disk", Mark.FAIL, f"only {machine.space}", do)


def _clock(machine: Machine) -> Finding:
    if abs(machine.skew) <= SKEW:
        return Finding("clock", Mark.OK, f"{abs(machine.skew):.2f} s beside that of the disk")
    how = "behind" if machine.skew > 0 else "ahead of"
    sentence = f"the clock is {abs(machine.skew):.0f} s {how} that of the disk"
    return Finding("clock", Mark.WARN, sentence, "set both, as by NTP: leases and signs of life compare them")


def _board(project: Project) -> Finding:
    if project.trouble is None:
        return Finding("board", Mark.OK, "it is valid")
    return Finding("board", Mark.FAIL, project.trouble.splitlines()[0], "`liza validate` says it all")


def _sandbox(project: Project) -> Finding:
    if project.refused:
        return Finding("sandbox", Mark.FAIL, f"`liza run` would not start: {project.refused}")
    if project.sandbox:
        return Finding("sandbox", Mark.WARN, project.sandbox)
    return Finding("sandbox", Mark.OK, "agents and gates are caged")


def _lock(project: Project) -> Finding:
    if project.holder is None:
        return Finding("supervisor", Mark.OK, "none is running here")
    real = project.real_holder
    if real is None or f"process {real} " in f"{project.holder} ":
        return Finding("supervisor", Mark.OK, f"{project.holder} is running")
    sentence = f"the lock says {project.holder}, and process {real} has it"
    return Finding("supervisor", Mark.FAIL, sentence, f"look at it (`ps {real}`) and end it")


def _processes(project: Project) -> Finding:
    left = (*project.orphans, *project.leftovers)
    if not left:
        return Finding("processes", Mark.OK, "nothing is left of earlier runs")
    return Finding(
        "processes", Mark.WARN, f"left by an earlier run: {', '.join(left)}", "`liza recover` ends them"
    )


def _worktrees(project: Project) -> Finding:
    if not project.stale:
        return Finding("worktrees", Mark.OK, "none is stale")
    sentence = f"of tasks that are over: {', '.join(project.stale)}"
    return Finding("worktrees", Mark.WARN, sentence, "`liza recover` saves what is in them and removes them")


def _salvage(project: Project) -> Finding:
    if not project.salvages:
        return Finding("salvage", Mark.OK, "nothing waits")
    return Finding("salvage", Mark.OK, f"{project.salvages} saved; `liza salvage list` shows them")


def _identity(project: Project) -> Finding:
    if project.has_identity:
        return Finding("identity", Mark.OK, "git knows your name")
    do = "git config user.name and user.email"
    return Finding("identity", Mark.WARN, "git has no name for you, so commits are signed by Liza", do)


def _integration(project: Project) -> Finding:
    name = project.integration
    if project.checked_out:
        do = f"git -C {project.checked_out} switch --detach"
        return Finding("integration", Mark.FAIL, f"{name} is checked out in {project.checked_out}", do)
    if project.integration_at is None:
        return Finding("integration", Mark.OK, f"{name} is made when a run begins")
    return Finding("integration", Mark.OK, f"{name} is at {project.integration_at[:12]}")


def _agent(project: Project) -> Finding:
    if project.has_agent:
        return Finding("settings", Mark.OK, "an agent is set up")
    return Finding("settings", Mark.WARN, "no agent is set up", "set agents.default.command in liza.yaml")


def _switches(project: Project) -> Finding:
    if not project.switches:
        return Finding("switches", Mark.OK, "none is thrown")
    return Finding(
        "switches", Mark.WARN, f"thrown: {', '.join(project.switches)}", "`liza resume` takes it back"
    )


def _gates(project: Project) -> Finding:
    if project.gates is None:
        return Finding("gates", Mark.OK, "not tried on what work is based on", "`liza run` tries them first")
    if not project.gates:
        do = "set gates.test in liza.yaml"
        return Finding("gates", Mark.WARN, "there is no test command, so nothing runs what is merged", do)
    bad = [gate for gate in project.gates if gate.is_in_the_way]
    said = "; ".join(gate.sentence for gate in bad or project.gates)
    return Finding("gates", Mark.FAIL if bad else Mark.OK, said, bad[0].likely if bad else "")


MACHINE_CHECKS: Final[tuple[Callable[[Machine], Finding], ...]] = (
    *(_python, _git, _cage, _kernel, _inotify, _open_files, _programs, _keys, _disk, _clock),
)
PROJECT_CHECKS: Final[tuple[Callable[[Project], Finding], ...]] = (
    *(_board, _sandbox, _lock, _processes, _worktrees, _salvage, _identity, _integration, _agent, _gates),
    _switches,
)


def judged(machine: Machine, project: Project | None) -> list[Finding]:
    """Return a finding for everything that was looked at."""
    return [
        *(check(machine) for check in MACHINE_CHECKS),
        *((check(project) for check in PROJECT_CHECKS) if project else ()),
    ]
