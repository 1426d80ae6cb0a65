"""The sandbox of each run of a project, built from its settings, its repository and this machine."""

from __future__ import annotations

import json
import os
import re
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
from liza.domain.config import Network, SandboxConfig, SandboxMode
from liza.errors import NoCage
from liza.repo.copies import copy_into
from liza.repo.dependencies import (
    installed_folders,
    link_dependencies,
    remove_dependency_links,
    strict_editable_folders,
)
from liza.repo.editable import Redirection
from liza.repo.mounting import MountPoints
from liza.repo.pool import Worktrees
from liza.repo.private_gitdir import PrivateGitDir
from liza.repo.repository import Repository
from liza.repo.worktree import write_text_whole
from liza.system.no_follow import remove
from liza.system.ports import ports_of
from liza.system.sandbox import egress_client
from liza.system.sandbox.bubblewrap import (
    DEPENDENCIES,
    SANDBOX_ROOT,
    Access,
    Mount,
    PrivateDirs,
    ProcessBounds,
    RunPurpose,
    SandboxSpec,
    host_mounts,
    inspect_host,
    is_below,
    probe_sandbox,
    sandbox_environment,
    sandbox_obstacle,
)
from liza.system.sandbox.egress_proxy import MODEL_HOSTS, run_egress_proxy
from liza.system.sandbox.gate_home import GateHome, environment_with_home

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State
    from liza.system.process import Job
    from liza.system.sandbox.bubblewrap import HostView, Tenant

SANDBOXES: Final = "cages"  # below .liza: what caged runs have for themselves
PROXY_PORT: Final = 3128  # on a loopback that only the cage has
PROXY_SOCKET: Final = SANDBOX_ROOT / "turnstile"
EGRESS_CLIENT: Final = SANDBOX_ROOT / "hatch.py"
BRIEF: Final = SANDBOX_ROOT / "brief.json"
PROGRAMS: Final = (
    SANDBOX_ROOT / "programs"
)  # where the cage has those programs of the checkout that are agents
HOME: Final = SANDBOX_ROOT / "home"  # where it has a home that would stand where the work is
# What of the user's own configuration of git belongs to content, or signs it; the rest stays outside.
_GIT_SETTINGS: Final = re.compile(
    r"(user\.(name|email)|core\.(autocrlf|eol|safecrlf)|filter\..*|init\.defaultbranch)$", re.DOTALL
)
_URL_SUFFIXES: Final = ("_BASE_URL", "_API_BASE", "_HOST")  # how the variables end that name one
_LOOPBACK: Final = ("127.0.0.1:", "localhost:")


def is_sandboxed(sandbox: SandboxConfig) -> bool:
    """Return whether agents run in a sandbox under these settings, on this machine."""
    return sandbox.mode is not SandboxMode.OFF and sandbox_obstacle() is None


def require_sandbox(sandbox: SandboxConfig) -> None:
    """Raise `NoCage` where the settings ask for a sandbox that this machine does not have."""
    if sandbox.mode is SandboxMode.OFF or (trial := probe_sandbox()).why is None:
        return
    why = trial.why
    if sandbox.mode is SandboxMode.REQUIRE:
        raise NoCage("sandbox.mode is `require`", why)
    if trial.is_passing:  # the machine has not said no
        raise NoCage("it is not clear whether there is a sandbox; try again", why)
    if sandbox.network is not Network.FULL:
        raise NoCage(f"sandbox.network is `{sandbox.network}`, which only a cage can keep", why)


def with_required_mode(sandbox: SandboxConfig) -> SandboxConfig:
    """Return the settings with mode `require` where `auto` found a sandbox: from here on agents run in it or
    not at all.
    """
    is_open = sandbox.mode is SandboxMode.AUTO and is_sandboxed(sandbox)
    return sandbox.replace(mode=SandboxMode.REQUIRE) if is_open else sandbox


def sandbox_warning(sandbox: SandboxConfig) -> str | None:
    """Return the warning that agents run without a sandbox; None where they do not."""
    if is_sandboxed(sandbox):
        return None
    why = "sandbox.mode is `off`" if sandbox.mode is SandboxMode.OFF else sandbox_obstacle()
    return f"agents run without a sandbox, with all the rights that you have: {why}"


class _JobView(NamedTuple):
    """Where a job is done: the path at which it finds itself, and what else of the machine it sees."""

    job: Job
    argv: Sequence[str]  # as they are right inside
    at: Path
    around: HostView
    opened: tuple[Mount, ...]
    points: MountPoints


@dataclass(frozen=True)
class ProjectSandbox:
    """Runs the jobs of one project in a sandbox, or unsandboxed where the settings say so."""

    home: Path
    repository: Repository
    sandbox: SandboxConfig
    copies: tuple[str, ...] = ()  # ignored files of the checkout that every tree gets

    @property
    def is_sandboxed(self) -> bool:
        return is_sandboxed(self.sandbox)

    def path_inside(self, cwd: Path) -> Path:
        """Return the path of the checkout for a worktree in a cage: what names the project means the work."""
        is_worktree = cwd.is_relative_to(self.repository.area)
        return self.repository.root.resolve() if is_worktree and self.is_sandboxed else cwd

    @contextmanager
    def caged(self, job: Job, visit: Tenant) -> Iterator[Job]:
        """Yield *job* wrapped in a sandbox, or as it is where there is none; afterwards take over what it
        committed.
        """
        job = replace(job, processes=self.sandbox.processes)
        require_sandbox(self.sandbox)
        job = self._equip(job)
        own = self.home / SANDBOXES / visit.name
        with ExitStack() as stack:
            home = self._home(visit, own, stack)
            if not is_sandboxed(self.sandbox):
                yield self._unsandboxed(job, visit, own, home)
                return
            site = self._job_view(job, visit, own)
            # Removed last, when the run is over: whatever looks at the worktree then finds the work alone.
            stack.enter_context(site.points)
            git, settings = self._git(site, visit, own / "git", stack)
            cage, environment = self._build_sandbox(site, visit, own, git)
            cage, environment = self._with_egress(cage, environment, visit, stack)
            yield replace(
                job,
                argv=cage.around(site.argv),
                environment=_with_git_settings(environment, settings),
                is_sandboxed=True,
                shared_mb=self.sandbox.memory_mb,
            )

    def _equip(self, job: Job) -> Job:
        """Put into a worktree what it gets beside its tree; return *job* with the ports that are its own."""
        worktree = Worktrees(self.repository).worktree_at(job.cwd)
        if worktree is None:
            return job
        copy_into(self.repository, self.copies, job.cwd)
        ports = ports_of(self.repository.root, worktree.admin.name)
        return replace(job, environment={**job.environment, **ports})

    def _home(self, visit: Tenant, own: Path, stack: ExitStack) -> GateHome | None:
        """Return the home that a gate's command has for itself; None where an agent keeps its own."""
        if visit.doing in (RunPurpose.AGENT, RunPurpose.READY):
            return None
        home = GateHome(own)
        home.begin(inherits=visit.inherits)
        stack.callback(home.keep if visit.doing is RunPurpose.SETUP else home.end)
        if not is_sandboxed(self.sandbox):
            home.populate(Path.home())
            stack.callback(home.clear_settings)
        return home

    def _unsandboxed(self, job: Job, visit: Tenant, own: Path, home: GateHome | None) -> Job:
        """Return *job* for a run without a sandbox, redirected so that it finds its own tree and not the
        checkout.
        """
        root, top = self.repository.root.resolve(), job.cwd.resolve()
        environment = dict(job.environment)
        if home is not None:
            environment = environment_with_home(home.path, environment)
        if not job.cwd.is_relative_to(self.repository.area):
            return replace(job, environment=environment)
        installed = installed_folders(self.repository)
        names = [path.relative_to(root) for path in installed]
        if visit.borrows:
            link_dependencies(root, top, names)
        else:
            remove_dependency_links(top, names)
        remove(own / "links")
        led = Redirection(root, top, installed, own / "links")
        worktree = Worktrees(self.repository).worktree_at(job.cwd)
        environment = _with_git_settings(environment, worktree.exclusion if worktree else {})
        if visit.doing is RunPurpose.AGENT:
            return replace(job, environment=led.environment(environment))
        *words, line = job.argv
        led.require_redirectable(environment, line)
        return replace(job, argv=(*words, led.line(line)), environment=led.environment(environment, line))

    def _job_view(self, job: Job, visit: Tenant, own: Path) -> _JobView:
        """Decide what the cage has of the checkout: paths in it that the tree does not have are mounted."""
        root, environment = self.repository.root.resolve(), dict(job.environment)
        at = self.path_inside(job.cwd)
        installed = installed_folders(self.repository) if visit.borrows else ()
        programs, argv = _checkout_programs(job, root, installed) if at == root else ([], job.argv)
        home = Path(environment.get("HOME") or Path.home())
        show = [self.repository.root / Path(name).expanduser() for name in self.sandbox.show]
        show += [*(home / name for name in visit.shows), *installed, *_interpreters(installed)]
        show += strict_editable_folders(root)
        around = inspect_host(argv, environment, checkout=root, show=show)
        write = [(self.repository.root / Path(name).expanduser()).resolve() for name in self.sandbox.write]
        opened = [
            *(Mount(path, Access.READ) for path in around.shown),
            *(Mount(path, Access.WRITE) for path in write if path.exists()),
        ]
        points = MountPoints.recover(job.cwd, root, own / "points")
        if at == root:
            opened = [
                mount
                for mount in opened
                if not mount.path.is_relative_to(root)
                or ((visit.borrows or mount.path.name not in DEPENDENCIES) and points.has(mount.path))
            ]
        around = replace(around, shown=tuple(path for path in around.shown if not path.is_relative_to(at)))
        return _JobView(job, argv, at, around, (*opened, *programs), points)

    def _git(
        self, site: _JobView, visit: Tenant, folder: Path, stack: ExitStack
    ) -> tuple[list[Mount], Mapping[str, str]]:
        """Return what the cage has of git, and the settings that its git needs."""
        worktree = Worktrees(self.repository).worktree_at(site.job.cwd)
        if worktree is None:
            return [], {}
        shadow = PrivateGitDir(worktree, folder, visit.task)
        mounts = shadow.cast(site.at, site.points.names)
        stack.callback(shadow.taken_over)
        return mounts, {key: value for key, value in self.repository.settings() if _GIT_SETTINGS.match(key)}

    def _build_sandbox(
        self, site: _JobView, visit: Tenant, own: Path, git: list[Mount]
    ) -> tuple[SandboxSpec, dict[str, str]]:
        remove(own / "tmp")
        privacy = PrivateDirs(own / "home", own / "tmp")
        for directory in privacy:
            directory.mkdir(parents=True, exist_ok=True)
        job, around = site.job, site.around
        if around.home == site.at:
            around = replace(around, home=HOME)
        environment = sandbox_environment(
            self.repository.author_variables | dict(job.environment), around.home
        )
        mounts = [
            *host_mounts(around, privacy),
            *(Mount(path, Access.WRITE) for name in visit.keeps if (path := around.home / name).exists()),
            *site.opened,
            Mount(site.at, Access.WRITE if visit.writes else Access.READ, job.cwd),
            *git,
        ]
        if brief := _copy_brief(job, site.at, own):
            mounts.append(Mount(BRIEF, Access.READ, brief))
            environment["LIZA_BRIEF"] = str(BRIEF)
        bounds = ProcessBounds(self.sandbox.memory_mb, self.sandbox.processes, self.sandbox.file_mb)
        cage = SandboxSpec(
            tuple(mounts),
            site.at,
            bounds,
            has_network=self.sandbox.network is Network.FULL,
            may_nest=visit.may_nest,
            as_root=os.geteuid() == 0,
        )
        return cage, environment

    def _with_egress(
        self, cage: SandboxSpec, environment: dict[str, str], visit: Tenant, stack: ExitStack
    ) -> tuple[SandboxSpec, dict[str, str]]:
        """Return the sandbox with an egress proxy to the models, and the environment that points to it."""
        if self.sandbox.network is not Network.MODEL_ONLY:
            return cage, environment
        hosts = (*MODEL_HOSTS, *visit.hosts, *self.sandbox.hosts, *hosts_in(environment))
        # By port: on the loopback of the cage only one can listen at each.
        local = {host.rpartition(":")[2]: host for host in hosts if host.startswith(_LOOPBACK)}.values()
        # The name of a socket must be short, so it is not with the rest of what the run has.
        way_out = Path(stack.enter_context(TemporaryDirectory(prefix="liza-"))) / "way-out"
        stack.enter_context(run_egress_proxy(way_out, hosts))
        program = Path(egress_client.__file__)
        gate = (sys.executable, "-I", str(EGRESS_CLIENT), str(PROXY_SOCKET), str(PROXY_PORT), *local, "--")
        mounts = (
            *cage.mounts,
            Mount(PROXY_SOCKET, Access.WRITE, way_out),
            Mount(EGRESS_CLIENT, Access.READ, program),
        )
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        led = (
            environment
            | dict.fromkeys(names, proxy)
            | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        )
        return replace(cage, mounts=mounts, gate=gate), led


def _checkout_programs(job: Job, root: Path, installed: Sequence[Path]) -> tuple[list[Mount], list[str]]:
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


def _copy_brief(job: Job, at: Path, own: Path) -> Path | None:
    """Return a copy of the brief in which the working directory is where the job finds itself."""
    path = Path(job.environment.get("LIZA_BRIEF", os.devnull))
    if not path.is_file():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    # A line for each fact: people read it, and the encoder in C writes no indented text.
    lines = ",\n".join(
        f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in (told | {"cwd": str(at)}).items()
    )
    write_text_whole(own / path.name, f"{{\n{lines}\n}}\n")
    return own / path.name


def hosts_in(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the hosts of model endpoints that the environment names."""
    for name, value in environment.items():
        if name.endswith(_URL_SUFFIXES) and (parts := urlsplit(value)).hostname:
            yield f"{parts.hostname}:{parts.port or (80 if parts.scheme == 'http' else 443)}"


def _with_git_settings(environment: dict[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* with these settings of git's, since the user's own file is not in the cage."""
    first = int(environment.get("GIT_CONFIG_COUNT", "0"))
    more: dict[str, str] = {}
    for number, (key, value) in enumerate(settings.items(), start=first):
        more |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment | more | {"GIT_CONFIG_COUNT": str(first + len(settings))}


def remove_stale_sandboxes(home: Path, repository: Repository) -> None:
    """Remove the folders of runs whose task has no worktree; only while nothing runs."""
    kept = set(Worktrees(repository).tasks())
    for folder in (home / SANDBOXES).glob("*"):
        if folder.name.rpartition(".")[0] not in kept:
            remove(folder)


def with_no_sandbox_anomaly(state: State, why: str, *, by: str, at: datetime) -> State:
    """Return the board with an anomaly, once, that agents run without a sandbox."""
    details = NoSandbox(why=why)
    if any(known.processed is None and known.details == details for known in state.anomalies.values()):
        return state
    return with_anomaly(state, details, about=None, by=by, at=at)
