"""The sandbox of a project; for runs without one, the detection of changes outside of their worktree."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from liza.board.location import credential_files
from liza.daemon.policy.pick import is_retriable
from liza.domain.anomalies import NoSandbox
from liza.domain.changes import Change, with_anomaly
from liza.domain.config import Network, SandboxConfig, SandboxMode
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import PersonCommit, State, Status
from liza.domain.record import printable, utc_now
from liza.errors import DiskTrouble, SandboxUnavailable
from liza.repo.merge import ensure_key, single_line
from liza.repo.pool import (
    MountPoints,
    Redirection,
    Worktrees,
    copy_into,
    installed_folders,
    link_dependencies,
    remove_dependency_links,
    strict_editable_folders,
)
from liza.repo.private_gitdir import PrivateGitDir
from liza.repo.repository import BRANCHES, TASK_PREFIX, Repository, branch_of
from liza.repo.snapshot import Fingerprint, drift, git_link_stamps, take_fingerprint
from liza.repo.verify import ChainCommit, first_parent_chain
from liza.repo.worktree import write_text_whole
from liza.system.files import hold_lock, remove
from liza.system.sandbox import egress_client
from liza.system.sandbox.bubblewrap import (
    DEPENDENCIES,
    ROOT,
    SANDBOX_ROOT,
    Access,
    GateHome,
    Mount,
    PrivateDirs,
    ProcessBounds,
    RunPurpose,
    SandboxSpec,
    environment_with_home,
    host_mounts,
    inspect_host,
    is_below,
    probe_sandbox,
    sandbox_environment,
    sandbox_obstacle,
)
from liza.system.sandbox.egress_proxy import MODEL_HOSTS, run_egress_proxy
from liza.workflow.document import page_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.system.process import Job
    from liza.system.sandbox.bubblewrap import HostView, Tenant


# Ports for what tests start: each worktree has some of its own, so that two side by side do not collide.

WIDTH: Final = 10  # ports of one worktree
FIRST: Final = 10_000
_SLOTS: Final = 32  # worktrees of one project before its ports may be those of another project
_PROJECTS: Final = 70  # so that all ports are below 32768, where the kernel gives out its own


def ports_of(root: Path, slot: str) -> dict[str, str]:
    """Return the variables that name the ports of the worktree that has this *slot* in the project *root*."""
    number = int((re.findall(r"\d+", slot) or ["0"])[-1])
    project = zlib.crc32(str(root).encode(errors="surrogateescape")) % _PROJECTS
    first = FIRST + (project * _SLOTS + number) % (_PROJECTS * _SLOTS) * WIDTH
    return {"LIZA_PORT": str(first), "LIZA_PORTS": f"{first}-{first + WIDTH - 1}"}


SANDBOXES: Final = "sandboxes"  # below .liza: the private directories of sandboxed runs
PROXY_PORT: Final = 3128  # on the loopback of the sandbox
PROXY_SOCKET: Final = SANDBOX_ROOT / "egress.sock"
EGRESS_CLIENT: Final = SANDBOX_ROOT / "egress_client.py"
BRIEF: Final = SANDBOX_ROOT / "brief.json"
PROGRAMS: Final = SANDBOX_ROOT / "programs"  # mount point of agents that are programs of the checkout
HOME: Final = SANDBOX_ROOT / "home"  # the home directory where nothing can be mounted at the user's
# The user's git settings that affect content or authorship; all others stay outside.
_GIT_SETTINGS: Final = re.compile(
    r"(user\.(name|email)|core\.(autocrlf|eol|safecrlf)|filter\..*|init\.defaultbranch)$", re.DOTALL
)
_URL_SUFFIXES: Final = ("_BASE_URL", "_API_BASE", "_HOST")  # of variables that name a model endpoint
_LOOPBACK: Final = ("127.0.0.1:", "localhost:")


def is_sandboxed(sandbox: SandboxConfig) -> bool:
    """Return whether agents run in a sandbox under these settings, on this machine."""
    return sandbox.mode is not SandboxMode.OFF and sandbox_obstacle() is None


def require_sandbox(sandbox: SandboxConfig) -> None:
    """Raise `SandboxUnavailable` where the settings ask for a sandbox that this machine does not have."""
    if sandbox.mode is SandboxMode.OFF or (probe := probe_sandbox()).why is None:
        return
    why = probe.why
    if sandbox.mode is SandboxMode.REQUIRE:
        raise SandboxUnavailable("sandbox.mode is `require`", why)
    if probe.is_transient:  # the machine has not said no
        raise SandboxUnavailable("it is not clear whether there is a sandbox; try again", why)
    if sandbox.network is not Network.FULL:
        raise SandboxUnavailable(
            f"sandbox.network is `{sandbox.network}`, which only a sandbox can keep", why
        )


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
    """What a job sees in its sandbox: its working directory *at*, and the parts of the host *around* it."""

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
        """Return where a sandboxed job finds *cwd*: a worktree is mounted at the path of the checkout."""
        is_worktree = cwd.is_relative_to(self.repository.area)
        return self.repository.root.resolve() if is_worktree and self.is_sandboxed else cwd

    @contextmanager
    def wrap(self, job: Job, tenant: Tenant) -> Iterator[Job]:
        """Yield *job* wrapped in a sandbox, or unsandboxed as configured; import its commits afterwards."""
        job = replace(job, processes=self.sandbox.processes)
        require_sandbox(self.sandbox)
        job = self._equip(job)
        own = self.home / SANDBOXES / tenant.name
        with ExitStack() as stack:
            home = self._home(tenant, own, stack)
            if not is_sandboxed(self.sandbox):
                yield self._unsandboxed(job, tenant, own, home)
                return
            view = self._job_view(job, tenant, own)
            # Removed last, when the run is over: whatever looks at the worktree then finds the work alone.
            stack.enter_context(view.points)
            git, settings = self._git(view, tenant, own / "git", stack)
            spec, environment = self._build_sandbox(view, tenant, own, git)
            spec, environment = self._with_egress(spec, environment, tenant, stack)
            yield replace(
                job,
                argv=spec.around(view.argv),
                environment=_with_git_settings(environment, settings),
                is_sandboxed=True,
                shared_mb=self.sandbox.memory_mb,
            )

    def _equip(self, job: Job) -> Job:
        """Copy ignored files into the worktree of *job*; return the job with its own ports."""
        worktree = Worktrees(self.repository).worktree_at(job.cwd)
        if worktree is None:
            return job
        copy_into(self.repository, self.copies, job.cwd)
        ports = ports_of(self.repository.root, worktree.admin.name)
        return replace(job, environment={**job.environment, **ports})

    def _home(self, tenant: Tenant, own: Path, stack: ExitStack) -> GateHome | None:
        """Return the private home of a gate's command; None for an agent, which has its own."""
        if tenant.doing in (RunPurpose.AGENT, RunPurpose.READY):
            return None
        home = GateHome(own)
        home.begin(inherits=tenant.inherits)
        stack.callback(home.keep if tenant.doing is RunPurpose.SETUP else home.end)
        if not is_sandboxed(self.sandbox):
            home.populate(Path.home())
            stack.callback(home.clear_settings)
        return home

    def _unsandboxed(self, job: Job, tenant: Tenant, own: Path, home: GateHome | None) -> Job:
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
        if tenant.borrows:
            link_dependencies(root, top, names)
        else:
            remove_dependency_links(top, names)
        remove(own / "links")
        redirection = Redirection(root, top, installed, own / "links")
        worktree = Worktrees(self.repository).worktree_at(job.cwd)
        environment = _with_git_settings(environment, worktree.exclusion if worktree else {})
        if tenant.doing is RunPurpose.AGENT:
            return replace(job, environment=redirection.environment(environment))
        *words, line = job.argv
        redirection.require_redirectable(environment, line)
        return replace(
            job, argv=(*words, redirection.line(line)), environment=redirection.environment(environment, line)
        )

    def _job_view(self, job: Job, tenant: Tenant, own: Path) -> _JobView:
        """Return what *job* sees: of the checkout, the shown paths that its worktree lacks are mounted."""
        root, environment = self.repository.root.resolve(), dict(job.environment)
        at = self.path_inside(job.cwd)
        installed = installed_folders(self.repository) if tenant.borrows else ()
        programs, argv = _checkout_programs(job, root, installed) if at == root else ([], job.argv)
        home = Path(environment.get("HOME") or Path.home())
        show = [self.repository.root / Path(name).expanduser() for name in self.sandbox.show]
        show += [*(home / name for name in tenant.shows), *installed, *_interpreters(installed)]
        show += strict_editable_folders(root)
        hide = [root / name for name in credential_files(self.home)]
        around = inspect_host(argv, environment, checkout=root, show=show, hide=hide)
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
                or ((tenant.borrows or mount.path.name not in DEPENDENCIES) and points.has(mount.path))
            ]
        around = replace(around, shown=tuple(path for path in around.shown if not path.is_relative_to(at)))
        return _JobView(job, argv, at, around, (*opened, *programs), points)

    def _git(
        self, view: _JobView, tenant: Tenant, folder: Path, stack: ExitStack
    ) -> tuple[list[Mount], Mapping[str, str]]:
        """Return the mounts of a private git directory, and the git settings of the sandbox."""
        worktree = Worktrees(self.repository).worktree_at(view.job.cwd)
        if worktree is None:
            return [], {}
        gitdir = PrivateGitDir(worktree, folder, tenant.task)
        mounts = gitdir.create_copies(view.at, view.points.names)
        stack.callback(gitdir.import_commits)
        return mounts, {key: value for key, value in self.repository.settings() if _GIT_SETTINGS.match(key)}

    def _build_sandbox(
        self, view: _JobView, tenant: Tenant, own: Path, git: list[Mount]
    ) -> tuple[SandboxSpec, dict[str, str]]:
        remove(own / "tmp")
        private = PrivateDirs(own / "home", own / "tmp")
        for directory in private:
            directory.mkdir(parents=True, exist_ok=True)
        job, around = view.job, view.around
        if around.home in (view.at, ROOT) or not around.home.is_dir():  # as accounts of services have it
            around = replace(around, home=HOME)
        environment = sandbox_environment(
            self.repository.author_variables | dict(job.environment), around.home
        )
        mounts = [
            *host_mounts(around, private),
            *(Mount(path, Access.WRITE) for name in tenant.keeps if (path := around.home / name).exists()),
            *view.opened,
            Mount(view.at, Access.WRITE if tenant.writes else Access.READ, job.cwd),
            *git,
        ]
        if brief := _copy_brief(job, view.at, own):
            mounts.append(Mount(BRIEF, Access.READ, brief))
            environment["LIZA_BRIEF"] = str(BRIEF)
        bounds = ProcessBounds(self.sandbox.memory_mb, self.sandbox.processes, self.sandbox.file_mb)
        spec = SandboxSpec(
            tuple(mounts),
            view.at,
            bounds,
            has_network=self.sandbox.network is Network.FULL,
            may_nest=tenant.may_nest,
            as_root=os.geteuid() == 0,
        )
        return spec, environment

    def _with_egress(
        self, spec: SandboxSpec, environment: dict[str, str], tenant: Tenant, stack: ExitStack
    ) -> tuple[SandboxSpec, dict[str, str]]:
        """Return the sandbox with an egress proxy to the models, and the environment that points to it."""
        if self.sandbox.network is not Network.MODEL_ONLY:
            return spec, environment
        hosts = (*MODEL_HOSTS, *tenant.hosts, *self.sandbox.hosts, *hosts_in(environment))
        # By port: on the loopback of the sandbox only one can listen at each.
        local = {host.rpartition(":")[2]: host for host in hosts if host.startswith(_LOOPBACK)}.values()
        # The name of a socket must be short, so it is not with the rest of what the run has.
        way_out = Path(stack.enter_context(TemporaryDirectory(prefix="liza-"))) / "way-out"
        stack.enter_context(run_egress_proxy(way_out, hosts))
        program = Path(egress_client.__file__)
        gate = (sys.executable, "-I", str(EGRESS_CLIENT), str(PROXY_SOCKET), str(PROXY_PORT), *local, "--")
        mounts = (
            *spec.mounts,
            Mount(PROXY_SOCKET, Access.WRITE, way_out),
            Mount(EGRESS_CLIENT, Access.READ, program),
        )
        proxy = f"http://127.0.0.1:{PROXY_PORT}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        redirection = (
            environment
            | dict.fromkeys(names, proxy)
            | dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        )
        return replace(spec, mounts=mounts, gate=gate), redirection


def _checkout_programs(job: Job, root: Path, installed: Sequence[Path]) -> tuple[list[Mount], list[str]]:
    """Return mounts of the checkout's programs that the command starts, and the command with their paths.

    The user's version, never the worktree's: a coder could rewrite the program of its reviewer.
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
    """Return a copy of the brief that names the working directory as the sandbox has it."""
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
    """Return *environment* with git *settings*: the user's own file is not in the sandbox."""
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


# What moved while agents ran that is not theirs to move: your things, other tasks', what was merged.
#
# Each look compares what is with what the last one saw, whoever looked then (`.liza/sight.json`), so that a
# change is noticed once, and none falls between two. What others of Liza's own do meanwhile is no drift. It
# is on the board: a task that somebody is at work on may move its branch, and the integration branch moves by
# merges that were announced there. What moved while no run was going on is a person's doing. In a sandbox
# none of this is in an agent's reach, and nobody looks.

# The integration branch as the board knows it: merges of tasks, commits that people made, and strangers.
#
# A commit on the branch is known where the board was told of it, or where the board's own key signed it. All
# others are strangers: somebody put them there. In a sandbox no agent can, so that they are a person's.
# Without one they are a person's where no agent was at work, or where the board itself had asked for them.

TAKEN_AS_YOURS: Final = "taken as yours, on the integration branch: "


def note_base(board: Board, head: str, *, by: str) -> State:
    """Record, once, where the integration branch was before the first merge of this board."""
    state = board.read()
    if state.integration.base is not None:
        return state

    def make(latest: State) -> State:
        known = latest.integration
        return latest if known.base else latest.replace(integration=known.replace(base=head))

    return board.update(Change(by, "note where the integration branch begins", make))


def known_commits(state: State) -> frozenset[str]:
    """Return the commits on the integration branch that the board has on record."""
    merging = (task.merging.commit for task in state.tasks.values() if task.merging)
    merged = (task.merge_commit for task in state.tasks.values() if task.merge_commit)
    yours = (one.commit for one in state.integration.yours)
    return frozenset([*merging, *merged, *yours, *filter(None, [state.integration.base])])


def unknown_commits(repository: Repository, home: Path, state: State, head: str) -> list[ChainCommit]:
    """Return the commits below *head* that are neither on record nor signed by the board, oldest first."""
    known = known_commits(state)
    if head in known or state.integration.base is None:
        return []
    key = ensure_key(home)
    chain = first_parent_chain(repository, head, state.integration.base)
    return [link for link in chain if link.commit not in known and not link.is_signed_with(key)]


def is_requested_resolution(repository: Repository, state: State, head: str) -> bool:
    """Return whether *head* has the work of a task whose conflict the board asks people to resolve."""
    asked = (
        task
        for task in state.tasks.values()
        if is_retriable(task) or (task.status is Status.APPROVED and task.conflicted)
    )
    return any(repository.contains(head, str(task.review_commit)) for task in asked)


def record_human_commits(
    board: Board, found: Iterable[ChainCommit], why: str, *, by: str, at: datetime
) -> str:
    """Record that people made the commits *found*; return the sentence to tell them."""
    new = tuple(found)

    def make(state: State) -> State:
        known = {one.commit for one in state.integration.yours}
        more = tuple(
            PersonCommit(commit=link.commit, at=at, why=why) for link in new if link.commit not in known
        )
        yours = (*state.integration.yours, *more)
        return state.replace(integration=state.integration.replace(yours=yours)) if more else state

    board.update(Change(by, "take commits on the integration branch as yours", make))
    return f"{TAKEN_AS_YOURS}{commit_list(new)} ({why})"


def commit_list(found: Iterable[ChainCommit]) -> str:
    """Return *found* as a list of hashes and subjects."""
    return "; ".join(
        f"{link.commit[:12]} {single_line(printable(link.message.partition(chr(10))[0]))[:72]}".strip()
        for link in found
    )


OBSERVATION_FILE: Final = "sight.json"  # below .liza
LOCK: Final = "sight.lock"
IDLE: Final = "no agent was at work"
ASKED: Final = "the board asked for it"
DRIFTED: Final = "moved what is yours: "  # what the reason of a task says that was blocked for it
RESUMED: Final = "a person looked and resumed"


class DriftReport(NamedTuple):
    """The result of a check: changes that pause the run, changes to report, and who was running."""

    stops: tuple[str, ...] = ()  # what only an agent does
    told: tuple[str, ...] = ()  # what people may have done
    suspects: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()  # those of *stops* that are about commits on the integration branch


@dataclass(frozen=True)
class Observation:
    """What a check recorded; *at_rest* counts the events of tasks that nobody held when it began."""

    fingerprint: Fingerprint
    links: Mapping[str, str]
    at_rest: Mapping[str, int]
    running: Mapping[str, str | None] = field(default_factory=dict)  # worker: its task
    strange: tuple[str, ...] = ()  # commits on the integration branch that people have to decide about

    def to_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if name != "fingerprint"}
        return {"print": self.fingerprint.to_json(), **plain}


@dataclass
class TamperMonitor:
    """Detects tampering for one worker or for the supervisor; *task* is the task of its runs."""

    home: Path
    board: Board
    repository: Repository
    name: str
    task: str | None = None
    clock: Callable[[], datetime] = utc_now
    is_registered: bool = False
    _is_fresh: bool = False  # whether this very turn has looked just before

    def begin(self) -> DriftReport:
        """Register a run of this worker; check first where no other worker is running."""
        if self.is_registered:
            return DriftReport()
        with hold_lock(self.home / LOCK):
            before, state = self._last_observation(), self.board.read()
            others = before and _running_workers(state, before.running, but=self.name)
            self.is_registered = True
            if before and (others or self._is_fresh):
                self._keep(before, running={**before.running, self.name: self.task})
                return DriftReport()
            return self._look(before, running={self.name: self.task})

    def end(self) -> DriftReport:
        """Check after a run of this worker."""
        if not self.is_registered:
            return DriftReport()
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            self.is_registered, self._is_fresh = False, True
            if before is None:
                self._look(None, running={})
                return DriftReport(
                    (f"{self.home / OBSERVATION_FILE} was removed or spoilt",), (), frozenset({self.name})
                )
            others = _running_workers(self.board.read(), before.running, but=self.name)
            return self._look(before, running=others)

    def start(self) -> DriftReport:
        """Check before the first run: changes that a killed run left are reported and pause nobody.

        But for commits on the integration branch: somebody has to say whose they are.
        """
        with hold_lock(self.home / LOCK):
            seen = self._look(self._last_observation(), running={})
        return seen._replace(stops=seen.strange, told=(*seen.told, *(set(seen.stops) - set(seen.strange))))

    def look(self) -> DriftReport:
        """Check while other workers go on."""
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            running = _running_workers(self.board.read(), before.running, but="") if before else {}
            return self._look(before, running=running)

    def accept(self) -> list[str]:
        """Accept the present state as a person's; return a sentence for commits accepted on integration."""
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            fingerprint = take_fingerprint(self.repository)
            running = before.running if before else {}
            after = Observation(
                fingerprint, git_link_stamps(Worktrees(self.repository)), _at_rest(self.board.read()), running
            )
            state = self._ensure_base(after)
            head = fingerprint.refs.get(self._integration(state))
            found = unknown_commits(self.repository, self.home, state, head) if head else []
            self._keep(after)
        return [self._take(found, RESUMED)] if found else []

    def _look(self, before: Observation | None, *, running: Mapping[str, str | None]) -> DriftReport:
        # The board is read on both sides of the scan: who was at rest before it, and still is after it, was
        # at rest all the time. Whoever took a task meanwhile had every right to move what belongs to it.
        first = self.board.read()
        fingerprint = take_fingerprint(self.repository, since=before.fingerprint if before else None)
        after = Observation(
            fingerprint, git_link_stamps(Worktrees(self.repository)), _at_rest(first), running
        )
        suspects = frozenset(before.running) if before else frozenset()
        if not fingerprint.looked and before:
            # No git runs under a configuration that nobody has looked at, at this look or the next.
            self._keep(before, running=running)
            moved = tuple(map(str, drift(before.fingerprint, fingerprint)))
            return DriftReport(moved, (), suspects)
        state = self._ensure_base(after)
        stops, told = self._compare(before, after, state) if before and suspects else ([], [])
        strange, taken = self._adopt_unknown(before, after, state, is_quiet=not suspects)
        self._keep(after, strange=tuple(link.commit for link in strange))
        news = [link for link in strange if not before or link.commit not in before.strange]
        named = (unknown_commits_sentence(state, commit_list(strange)),) if news else ()
        return DriftReport((*stops, *named), (*told, *taken), suspects, named)

    def _ensure_base(self, after: Observation) -> State:
        head = after.fingerprint.refs.get(self._integration(self.board.read()))
        return note_base(self.board, head, by=self.name) if head else self.board.read()

    def _compare(self, before: Observation, after: Observation, state: State) -> tuple[list[str], list[str]]:
        """Return the changes that only an agent makes, and those that a person may have made."""
        resting = {name for name, count in before.at_rest.items() if count == _at_rest(state).get(name)} - {
            self.task
        }
        refs = before.fingerprint.refs.keys() | after.fingerprint.refs.keys()
        theirs = [branch_of(task) for task in resting]
        allowed = [ref for ref in refs if ref.startswith(f"{BRANCHES}{TASK_PREFIX}/") and ref not in theirs]
        integration = self._integration(state)
        own = page_paths(state)  # the supervisor looks after these
        moved = [
            one
            for one in drift(before.fingerprint, after.fingerprint, [*allowed, integration])
            if not _is_of(one.ref, own)
        ]
        stops = [str(one) for one in moved if not one.may_be_yours]
        if after.fingerprint.looked:
            stops += self._lost_commits(before, after, integration)
        stops += [
            f".git in the worktree of {task} was touched"
            for task in sorted(resting & before.links.keys() & after.links.keys())
            if before.links[task] != after.links[task]
        ]
        return stops, [str(one) for one in moved if one.may_be_yours]

    def _lost_commits(self, before: Observation, after: Observation, ref: str) -> list[str]:
        """Return a sentence where the integration branch lost commits; new ones are checked elsewhere."""
        old, new = before.fingerprint.refs.get(ref), after.fingerprint.refs.get(ref)
        name = f"the branch {ref.removeprefix(BRANCHES)}"
        if not old or old == new:
            return []
        if not new:
            return [f"{name} was removed: {old[:12]}, now nothing"]
        if not self.repository.contains(new, old):
            return [f"{name} was changed: {old[:12]}, now {new[:12]}"]
        return []

    def _adopt_unknown(
        self, before: Observation | None, after: Observation, state: State, *, is_quiet: bool
    ) -> tuple[list[ChainCommit], list[str]]:
        """Accept people's commits on the integration branch; return the other ones, and what to report."""
        head = after.fingerprint.refs.get(self._integration(state))
        found = unknown_commits(self.repository, self.home, state, head) if head else []
        if not found:
            return [], []
        if is_requested_resolution(self.repository, state, str(head)):
            return [], [self._take(found, ASKED)]
        known = before.strange if before else ()
        if is_quiet and not any(link.commit in known for link in found):
            return [], [self._take(found, IDLE)]
        return found, []

    def _take(self, found: list[ChainCommit], why: str) -> str:
        return record_human_commits(self.board, found, why, by=self.name, at=self.clock())

    def _integration(self, state: State) -> str:
        return BRANCHES + state.config.integration_branch

    def _last_observation(self) -> Observation | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            plain = json.loads((self.home / OBSERVATION_FILE).read_text())
            fingerprint = Fingerprint(**plain.pop("print"))
            return Observation(**{**plain, "fingerprint": fingerprint, "strange": tuple(plain["strange"])})
        return None

    def _keep(
        self,
        observation: Observation,
        *,
        running: Mapping[str, str | None] | None = None,
        strange: tuple[str, ...] | None = None,
    ) -> None:
        plain = observation.to_json()
        plain["running"] = dict(observation.running if running is None else running)
        plain["strange"] = observation.strange if strange is None else strange
        try:
            write_text_whole(self.home / OBSERVATION_FILE, json.dumps(plain))
        except OSError as error:
            raise DiskTrouble(f"write {self.home / OBSERVATION_FILE}", error) from error


def unknown_commits_sentence(state: State, told: str) -> str:
    """Return the sentence that the integration branch has commits which no merge of the board made."""
    name = state.config.integration_branch
    return f"the branch {name} was changed: it has what no merge of the board made: {told}"


def _is_of(path: str, own: Collection[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in own)


def _at_rest(state: State) -> dict[str, int]:
    """Return the open tasks that are not WORKING, each with the number of its events."""
    return {
        name: task.event_count
        for name, task in state.tasks.items()
        if task.status not in TERMINAL and task.status is not Status.WORKING
    }


def _running_workers(state: State, running: Mapping[str, str | None], *, but: str) -> dict[str, str | None]:
    """Return those of *running* that the board still knows to be at work, without *but*."""
    held = {task.lease.holder for task in state.tasks.values() if task.lease}
    paid = {one.id for one in state.spend.reserved}
    return {name: task for name, task in running.items() if name != but and name in held | paid}
