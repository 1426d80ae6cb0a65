"""Who guards the agents of a project: settings, repository and machine made into a cage for each run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from liza.domain.anomalies import NoSandbox
from liza.domain.changes import with_anomaly
from liza.domain.config import Network, Sandbox, SandboxMode
from liza.errors import NoCage
from liza.repo.copies import copy_into
from liza.repo.dependencies import installed_in, lend, linked_in, take_back
from liza.repo.editable import Redirection
from liza.repo.mounting import Points
from liza.repo.pool import Worktrees
from liza.repo.private_gitdir import Shadow
from liza.repo.repository import Repository
from liza.repo.worktree import write
from liza.system.no_follow import remove
from liza.system.ports import ports_of
from liza.system.sandbox import egress_client
from liza.system.sandbox.bubblewrap import (
    DEPENDENCIES,
    INSIDE,
    Access,
    Bounds,
    Cage,
    Doing,
    Mount,
    Privacy,
    environment_in,
    is_below,
    obstacle,
    surrounding,
    surveyed,
    tried,
)
from liza.system.sandbox.egress_proxy import MODEL_HOSTS, turnstile
from liza.system.sandbox.homes import GateHome, environment_of

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State
    from liza.system.process import Job
    from liza.system.sandbox.bubblewrap import Surroundings, Visit

CAGES: Final = "cages"  # below .liza: what caged runs have for themselves
PROXY_PORT: Final = 3128  # on a loopback that only the cage has
SOCKET: Final = INSIDE / "turnstile"
HATCH: Final = INSIDE / "hatch.py"
BRIEF: Final = INSIDE / "brief.json"
PROGRAMS: Final = INSIDE / "programs"  # where the cage has those programs of the checkout that are agents
HOME: Final = INSIDE / "home"  # where it has a home that would stand where the work is
# What of the user's own configuration of git belongs to content, or signs it; the rest stays outside.
_GIT_SETTINGS: Final = r"^(user\.(name|email)|core\.(autocrlf|eol|safecrlf)|filter\..*|init\.defaultbranch)$"
_ADDRESSES: Final = ("_BASE_URL", "_API_BASE", "_HOST")  # how the variables end that name one
_LOOPBACK: Final = ("127.0.0.1:", "localhost:")


def is_caged(sandbox: Sandbox) -> bool:
    """Tell whether agents are caged under these settings, on this machine."""
    return sandbox.mode is not SandboxMode.OFF and obstacle() is None


def required(sandbox: Sandbox) -> None:
    """Refuse to go on where a cage is asked for that cannot be had."""
    if sandbox.mode is SandboxMode.OFF or (trial := tried()).why is None:
        return
    why = trial.why
    if sandbox.mode is SandboxMode.REQUIRE:
        raise NoCage("sandbox.mode is `require`", why)
    if trial.is_passing:  # the machine has not said no
        raise NoCage("it is not clear whether there is a sandbox; try again", why)
    if sandbox.network is not Network.FULL:
        raise NoCage(f"sandbox.network is `{sandbox.network}`, which only a cage can keep", why)


def kept(sandbox: Sandbox) -> Sandbox:
    """Return the settings of a board whose agents are caged now: from here on they are, or do not run."""
    is_open = sandbox.mode is SandboxMode.AUTO and is_caged(sandbox)
    return sandbox.but(mode=SandboxMode.REQUIRE) if is_open else sandbox


def warning(sandbox: Sandbox) -> str | None:
    """Return what people must know where agents run free; None where they do not."""
    if is_caged(sandbox):
        return None
    why = "sandbox.mode is `off`" if sandbox.mode is SandboxMode.OFF else obstacle()
    return f"agents run without a sandbox, with all the rights that you have: {why}"


class _Site(NamedTuple):
    """Where a job is done: the path at which it finds itself, and what else of the machine it sees."""

    job: Job
    argv: Sequence[str]  # as they are right inside
    at: Path
    around: Surroundings
    opened: tuple[Mount, ...]
    points: Points


@dataclass(frozen=True)
class Guard:
    """The warden of a project."""

    home: Path
    repository: Repository
    sandbox: Sandbox
    copies: tuple[str, ...] = ()  # ignored files of the checkout that every tree gets

    @property
    def is_caging(self) -> bool:
        return is_caged(self.sandbox)

    def path_inside(self, cwd: Path) -> Path:
        """Return the path of the checkout for a worktree in a cage: what names the project means the work."""
        is_worktree = cwd.is_relative_to(self.repository.area)
        return self.repository.root.resolve() if is_worktree and self.is_caging else cwd

    @contextmanager
    def caged(self, job: Job, visit: Visit) -> Iterator[Job]:
        """Give *job* in a cage, or as it is where there is none; then take over what it committed."""
        job = replace(job, processes=self.sandbox.processes)
        required(self.sandbox)
        job = self._equipped(job)
        own = self.home / CAGES / visit.name
        with ExitStack() as stack:
            home = self._home(visit, own, stack)
            if not is_caged(self.sandbox):
                yield self._free(job, visit, own, home)
                return
            site = self._site(job, visit, own)
            # Removed last, when the run is over: whatever looks at the worktree then finds the work alone.
            stack.enter_context(site.points)
            git, settings = self._git(site, visit, own / "git", stack)
            cage, environment = self._cage(site, visit, own, git)
            cage, environment = self._reaching(cage, environment, visit, stack)
            yield replace(
                job,
                argv=cage.around(site.argv),
                environment=_configured(environment, settings),
                is_caged=True,
                shared_mb=self.sandbox.memory_mb,
            )

    def _equipped(self, job: Job) -> Job:
        """Put into a worktree what it gets beside its tree; return *job* with the ports that are its own."""
        worktree = Worktrees(self.repository).registered(job.cwd)
        if worktree is None:
            return job
        copy_into(self.repository, self.copies, job.cwd)
        ports = ports_of(self.repository.root, worktree.admin.name)
        return replace(job, environment={**job.environment, **ports})

    def _home(self, visit: Visit, own: Path, stack: ExitStack) -> GateHome | None:
        """Return the home that a gate's command has for itself; None where an agent keeps its own."""
        if visit.doing in (Doing.AGENT, Doing.READY):
            return None
        home = GateHome(own)
        home.begin(inherits=visit.inherits)
        stack.callback(home.keep if visit.doing is Doing.SETUP else home.end)
        if not is_caged(self.sandbox):
            home.furnish(Path.home())
            stack.callback(home.clear_settings)
        return home

    def _free(self, job: Job, visit: Visit, own: Path, home: GateHome | None) -> Job:
        """Return *job* so that, without a cage, it finds the tree that it runs in and not the checkout."""
        root, top = self.repository.root.resolve(), job.cwd.resolve()
        environment = dict(job.environment)
        if home is not None:
            environment = environment_of(home.path, environment)
        if not job.cwd.is_relative_to(self.repository.area):
            return replace(job, environment=environment)
        installed = installed_in(self.repository)
        names = [path.relative_to(root) for path in installed]
        if visit.borrows:
            lend(root, top, names)
        else:
            take_back(top, names)
        remove(own / "links")
        led = Redirection(root, top, installed, own / "links")
        worktree = Worktrees(self.repository).registered(job.cwd)
        environment = _configured(environment, worktree.exclusion if worktree else {})
        if visit.doing is Doing.AGENT:
            return replace(job, environment=led.environment(environment))
        *words, line = job.argv
        led.require_seen(environment, line)
        return replace(job, argv=(*words, led.line(line)), environment=led.environment(environment, line))

    def _site(self, job: Job, visit: Visit, own: Path) -> _Site:
        """Decide what the cage has of the checkout: paths in it that the tree does not have are mounted."""
        root, environment = self.repository.root.resolve(), dict(job.environment)
        at = self.path_inside(job.cwd)
        installed = installed_in(self.repository) if visit.borrows else ()
        programs, argv = _programs(job, root, installed) if at == root else ([], job.argv)
        home = Path(environment.get("HOME") or Path.home())
        show = [self.repository.root / Path(name).expanduser() for name in self.sandbox.show]
        show += [*(home / name for name in visit.shows), *installed, *_interpreters(installed)]
        show += linked_in(root)
        around = surveyed(argv, environment, checkout=root, show=show)
        write = [(self.repository.root / Path(name).expanduser()).resolve() for name in self.sandbox.write]
        opened = [
            *(Mount(path, Access.READ) for path in around.shown),
            *(Mount(path, Access.WRITE) for path in write if path.exists()),
        ]
        points = Points.after_a_crash(job.cwd, root, own / "points")
        if at == root:
            opened = [
                mount
                for mount in opened
                if not mount.path.is_relative_to(root)
                or ((visit.borrows or mount.path.name not in DEPENDENCIES) and points.has(mount.path))
            ]
        around = replace(around, shown=tuple(path for path in around.shown if not path.is_relative_to(at)))
        return _Site(job, argv, at, around, (*opened, *programs), points)

    def _git(
        self, site: _Site, visit: Visit, folder: Path, stack: ExitStack
    ) -> tuple[list[Mount], Mapping[str, str]]:
        """Return what the cage has of git, and the settings that its git needs."""
        worktree = Worktrees(self.repository).registered(site.job.cwd)
        if worktree is None:
            return [], {}
        shadow = Shadow(worktree, folder, visit.task)
        mounts = shadow.cast(site.at, site.points.names)
        stack.callback(shadow.taken_over)
        lines = self.repository.ask("config", "-z", "--get-regexp", _GIT_SETTINGS).text.split("\0")
        return mounts, dict(line.split("\n", 1) for line in lines if "\n" in line)

    def _cage(self, site: _Site, visit: Visit, own: Path, git: list[Mount]) -> tuple[Cage, dict[str, str]]:
        remove(own / "tmp")
        privacy = Privacy(own / "home", own / "tmp")
        for directory in privacy:
            directory.mkdir(parents=True, exist_ok=True)
        job, around = site.job, site.around
        if around.home == site.at:
            around = replace(around, home=HOME)
        environment = environment_in(self.repository.signature | dict(job.environment), around.home)
        mounts = [
            *surrounding(around, privacy),
            *(Mount(path, Access.WRITE) for name in visit.keeps if (path := around.home / name).exists()),
            *site.opened,
            Mount(site.at, Access.WRITE if visit.writes else Access.READ, job.cwd),
            *git,
        ]
        if brief := _brief_inside(job, site.at, own):
            mounts.append(Mount(BRIEF, Access.READ, brief))
            environment["LIZA_BRIEF"] = str(BRIEF)
        bounds = Bounds(self.sandbox.memory_mb, self.sandbox.processes, self.sandbox.file_mb)
        cage = Cage(
            tuple(mounts),
            site.at,
            bounds,
            has_network=self.sandbox.network is Network.FULL,
            may_nest=visit.may_nest,
            as_root=os.geteuid() == 0,
        )
        return cage, environment

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
        program = Path(egress_client.__file__)
        gate = (sys.executable, "-I", str(HATCH), str(SOCKET), str(PROXY_PORT), *local, "--")
        mounts = (*cage.mounts, Mount(SOCKET, Access.WRITE, way_out), Mount(HATCH, Access.READ, program))
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        led = (
            environment
            | dict.fromkeys(names, proxy)
            | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        )
        return replace(cage, mounts=mounts, gate=gate), led


def _programs(job: Job, root: Path, installed: Sequence[Path]) -> tuple[list[Mount], list[str]]:
    """Return the agent's command with programs of the checkout as the user has them, and where those are.

    Never as the tree has them: a coder could rewrite the program of its reviewer.
    """
    mounts, words = [], list(job.argv)
    if found := shutil.which(words[0], path=job.environment.get("PATH", os.defpath)):
        words[0] = found if Path(found).is_relative_to(root) else words[0]
    for number, word in enumerate(words):
        path = Path(word)
        if not path.is_relative_to(root) or is_below(path, installed) or not path.is_file():
            continue
        shown = path if path.parent == root else path.parent  # a program may well be more than one file
        mounts.append(Mount(PROGRAMS / shown.relative_to(root), Access.READ, shown))
        words[number] = str(PROGRAMS / path.relative_to(root))
    return mounts, words


def _interpreters(installed: Sequence[Path]) -> Iterator[Path]:
    """Yield where the interpreters of virtual environments are installed: links lead there."""
    for path in installed:
        python = path / "bin" / "python"
        if python.exists():
            yield python.resolve().parent.parent


def _brief_inside(job: Job, at: Path, own: Path) -> Path | None:
    """Return a copy of the brief in which the working directory is where the job finds itself."""
    path = Path(job.environment.get("LIZA_BRIEF", os.devnull))
    if not path.is_file():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    write(own / path.name, json.dumps({**told, "cwd": str(at)}, indent=2))
    return own / path.name


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
