"""Who guards the agents of a project: settings, repository and machine made into a cage for each run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from liza.agents import hatch
from liza.agents.cage import (
    Access,
    Bounds,
    Cage,
    Mount,
    Privacy,
    environment_in,
    obstacle,
    surrounding,
    surveyed,
)
from liza.agents.turnstile import MODEL_HOSTS, turnstile
from liza.anomalies import NoSandbox
from liza.beneath import remove
from liza.changes import with_anomaly
from liza.config import Network, Sandbox, SandboxMode
from liza.errors import NoCage
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.repo.shadow import Shadow

if TYPE_CHECKING:
    from datetime import datetime

    from liza.agents.cage import Visit
    from liza.agents.process import Job
    from liza.model import State

CAGES: Final = "cages"  # below .liza: what caged runs have for themselves
PROXY_PORT: Final = 3128  # on a loopback that only the cage has
SOCKET: Final = Path("/run/liza/turnstile")
# What of the user's own configuration of git belongs to content, or signs it; the rest stays outside.
_GIT_SETTINGS: Final = r"^(user\.(name|email)|core\.(autocrlf|eol|safecrlf)|filter\..*|init\.defaultbranch)$"
_ADDRESSES: Final = ("_BASE_URL", "_API_BASE", "_HOST")  # how the variables end that name one
_LOOPBACK: Final = ("127.0.0.1:", "localhost:")


def is_caged(sandbox: Sandbox) -> bool:
    """Tell whether agents are caged under these settings, on this machine."""
    return sandbox.mode is not SandboxMode.OFF and obstacle() is None


def required(sandbox: Sandbox) -> None:
    """Refuse to go on where a cage is asked for that cannot be had."""
    why = obstacle()
    if why is None or sandbox.mode is SandboxMode.OFF:
        return
    if sandbox.mode is SandboxMode.REQUIRE:
        raise NoCage("sandbox.mode is `require`", why)
    if sandbox.network is not Network.FULL:
        raise NoCage(f"sandbox.network is `{sandbox.network}`, which only a cage can keep", why)


def warning(sandbox: Sandbox) -> str | None:
    """Return what people must know where agents run free; None where they do not."""
    if is_caged(sandbox):
        return None
    why = "sandbox.mode is `off`" if sandbox.mode is SandboxMode.OFF else obstacle()
    return f"agents run without a sandbox, with all the rights that you have: {why}"


@dataclass(frozen=True)
class Guard:
    """The warden of a project."""

    home: Path
    repository: Repository
    sandbox: Sandbox

    @property
    def is_caging(self) -> bool:
        return is_caged(self.sandbox)

    @contextmanager
    def caged(self, job: Job, visit: Visit) -> Iterator[Job]:
        """Give *job* in a cage, or as it is where there is none; then take over what it committed."""
        job = replace(job, processes=self.sandbox.processes)
        required(self.sandbox)
        if not is_caged(self.sandbox):
            yield job
            return
        own = self.home / CAGES / visit.name
        with ExitStack() as stack:
            mounts, settings = self._git(job, visit, own / "git", stack)
            cage, environment = self._cage(job, visit, own, mounts)
            cage, environment = self._reaching(cage, environment, visit, stack)
            yield replace(
                job,
                argv=cage.around(job.argv),
                environment=_configured(environment, settings),
                is_caged=True,
            )

    def _git(
        self, job: Job, visit: Visit, folder: Path, stack: ExitStack
    ) -> tuple[list[Mount], Mapping[str, str]]:
        """Return what the cage has of git, and the settings that its git needs."""
        worktree = Worktrees(self.repository).registered(job.cwd)
        if worktree is None:
            return [], {}
        shadow = Shadow(worktree, folder, visit.task)
        mounts = shadow.cast()
        stack.callback(shadow.taken_over)
        lines = self.repository.ask("config", "-z", "--get-regexp", _GIT_SETTINGS).text.split("\0")
        return mounts, dict(line.split("\n", 1) for line in lines if "\n" in line)

    def _cage(self, job: Job, visit: Visit, own: Path, git: list[Mount]) -> tuple[Cage, dict[str, str]]:
        remove(own / "tmp")
        privacy = Privacy(own / "home", own / "tmp")
        for directory in privacy:
            directory.mkdir(parents=True, exist_ok=True)
        home = Path(job.environment.get("HOME") or Path.home())
        show = [self.repository.root / Path(name).expanduser() for name in self.sandbox.show]
        show += [home / name for name in visit.shows]
        around = surveyed(job.argv, job.environment, checkout=self.repository.root.resolve(), show=show)
        brief = Path(job.environment.get("LIZA_BRIEF", os.devnull))
        write = [(self.repository.root / Path(name).expanduser()).resolve() for name in self.sandbox.write]
        mounts = [
            *surrounding(around, privacy),
            *(Mount(path, Access.WRITE) for path in write if path.exists()),
            *(Mount(path, Access.WRITE) for name in visit.keeps if (path := around.home / name).exists()),
            *git,
            Mount(job.cwd, Access.WRITE if visit.writes else Access.READ),
            *([Mount(brief, Access.READ)] if brief.is_relative_to(self.home) else []),
        ]
        bounds = Bounds(self.sandbox.memory_mb, self.sandbox.processes, self.sandbox.file_mb)
        is_open = self.sandbox.network is Network.FULL
        cage = Cage(
            tuple(mounts),
            job.cwd,
            bounds,
            has_network=is_open,
            may_nest=visit.may_nest,
            as_root=os.geteuid() == 0,
        )
        signature = self.repository.signature
        return cage, environment_in(signature | dict(job.environment), around.home)

    def _reaching(
        self, cage: Cage, environment: dict[str, str], visit: Visit, stack: ExitStack
    ) -> tuple[Cage, dict[str, str]]:
        """Return the cage with a way to the models, and the environment that leads there."""
        if self.sandbox.network is not Network.MODEL_ONLY:
            return cage, environment
        hosts = (*MODEL_HOSTS, *visit.hosts, *self.sandbox.hosts, *addressed(environment))
        # By port: on the loopback of the cage only one can listen at each.
        local = {host.rpartition(":")[2]: host for host in hosts if host.startswith(_LOOPBACK)}.values()
        # The name of a socket must be short, so it is not with the rest of what the run has.
        way_out = Path(stack.enter_context(TemporaryDirectory(prefix="liza-"))) / "way-out"
        stack.enter_context(turnstile(way_out, hosts))
        program = Path(hatch.__file__)
        gate = (sys.executable, "-I", str(program), str(SOCKET), str(PROXY_PORT), *local, "--")
        mounts = (*cage.mounts, Mount(SOCKET, Access.WRITE, way_out), Mount(program, Access.READ))
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        led = (
            environment
            | dict.fromkeys(names, proxy)
            | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        )
        return replace(cage, mounts=mounts, gate=gate), led


def addressed(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts at which the user's own variables say that models are."""
    for name, value in environment.items():
        if name.endswith(_ADDRESSES) and (parts := urlsplit(value)).hostname:
            yield f"{parts.hostname}:{parts.port or (80 if parts.scheme == 'http' else 443)}"


def _configured(environment: dict[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* with these settings of git's, since the user's own file is not in the cage."""
    first = int(environment.get("GIT_CONFIG_COUNT", "0"))
    more: dict[str, str] = {}
    for number, (key, value) in enumerate(settings.items(), start=first):
        more |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment | more | {"GIT_CONFIG_COUNT": str(first + len(settings))}


def tidied(home: Path, repository: Repository) -> None:
    """Remove what runs had for themselves, but for those of tasks that have a worktree; while none runs."""
    kept = set(Worktrees(repository).tasks())
    for folder in (home / CAGES).glob("*"):
        if folder.name.rpartition(".")[0] not in kept:
            remove(folder)


def uncaged(state: State, why: str, *, by: str, at: datetime) -> State:
    """Return the board with it said, once, that agents run free."""
    details = NoSandbox(why=why)
    if any(known.processed is None and known.details == details for known in state.anomalies.values()):
        return state
    return with_anomaly(state, details, about=None, by=by, at=at)
