"""The bubblewrap sandbox around an agent: what it sees, may write, can reach, and knows of us.

Decisions are pure: facts become mounts, and mounts become arguments of bwrap. Of two mounts the more specific
path wins, so that a secret inside a visible directory stays hidden. Whether the machine supports it is probed
once a process.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from liza.errors import DiskTrouble
from liza.system.files import remove
from liza.system.host import host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from liza.system.process import Job


# What an agent may know of our environment: an allowlist, since a secret that it never had cannot leak.

ALLOWED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
        # How a network is reached; without them an agent behind a proxy only hangs.
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy"),
        *("no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *(
            "VIRTUAL_ENV",
            "PYTHONPATH",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONPYCACHEPREFIX",
            "NODE_PATH",
            "GOPATH",
            "CARGO_HOME",
            "JAVA_HOME",
        ),
    }
)
NEVER: Final = frozenset({"LIZA_BOARD"})  # whatever the settings say: by it an agent could be a worker
ALLOWED_STEMS: Final = ("LC_", "GIT_AUTHOR_", "GIT_COMMITTER_")


# What keeps tools from waiting for a person who is not there, and git from leaving a process behind: its
# housekeeping would outlive the run, and ended half-way it can leave a lock.
HEADLESS: Final = {
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "2",
    "GIT_CONFIG_KEY_0": "gc.auto",
    "GIT_CONFIG_VALUE_0": "0",
    "GIT_CONFIG_KEY_1": "maintenance.auto",
    "GIT_CONFIG_VALUE_1": "false",
}


def allowed_environment(environment: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """Return what of *environment* an agent gets: what is allowed to all, and the names in *also*."""
    return {
        name: with_own_programs_last(value, environment) if name == "PATH" else value
        for name, value in environment.items()
        if name not in NEVER and (name in ALLOWED or name.startswith(ALLOWED_STEMS) or name in also)
    }


def with_own_programs_last(path: str, environment: Mapping[str, str]) -> str:
    """Return *path* with the programs of Liza's own environment last, unless its user activated it.

    Whoever put Liza on the PATH wanted `liza`, not its `python3` in place of the project's.
    """
    own = os.path.join(sys.prefix, "bin")  # noqa: PTH118 - compared with words of a PATH
    activated = environment.get("VIRTUAL_ENV")
    if sys.prefix == sys.base_prefix or (
        activated and os.path.realpath(activated) == os.path.realpath(sys.prefix)
    ):
        return path
    words = path.split(os.pathsep)
    others = [word for word in words if os.path.normpath(word) != own]
    return os.pathsep.join([*others, own]) if len(others) < len(words) else path


PROGRAM: Final = "bwrap"
INSTALL: Final = "install bubblewrap (on Debian and Ubuntu: apt install bubblewrap)"
PROBE_TIMEOUT: Final = 10.0  # seconds that the trial may take; it takes ten milliseconds
PAUSES: Final = (0.2, 1.0, 3.0)  # seconds before the second, third and fourth trial, where one is cut short
PROBE_AGAIN_AFTER: Final = 60.0  # seconds after which such a trial is made again
_SIGNALLED: Final = 128  # what a shell adds to the number of a signal
_SCARCE: Final = (errno.ENOMEM, errno.EAGAIN)
SMALL: Final = 64 << 20  # bytes of a directory in memory, which no limit of a process counts

_MB: Final = 1 << 20
# Its own namespaces: nothing outside can be signalled, traced or talked to but over the network.
# No --new-session: a job has a session without a terminal already, and a signal to its group must arrive.
_ALWAYS: Final = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--cap-drop", "ALL"),
)
# Without these an agent could make itself root of a namespace of its own, where more of the kernel is open.
_NO_NESTING: Final = ("--disable-userns", "--assert-userns-disabled")
# Some programs will not work for root without asking, and no sandbox can be built by root inside of another.
_NOT_ROOT: Final = ("--uid", "1000", "--gid", "1000")
# SIGTERM is for the agent: a bwrap that died by it would take the agent with it before it could tidy up.
_IGNORE_TERM: Final = ("env", "--ignore-signal=TERM")
_DEFAULT_TERM: Final = ("env", "--default-signal=TERM")


class Access(StrEnum):
    """What is at a path."""

    READ = "read"
    WRITE = "write"
    NOTHING = "nothing"  # what else is mounted below it, and no room for more
    ROOM = "room"  # a little memory to write to


class Mount(NamedTuple):
    path: Path
    access: Access
    source: Path | None = None  # what is seen at *path*; itself, if not given

    def words(self) -> list[str]:
        if self.access in (Access.NOTHING, Access.ROOM):
            return ["--size", str(SMALL), "--tmpfs", str(self.path)]
        word = "--bind" if self.access is Access.WRITE else "--ro-bind"
        return [word, str(self.source or self.path), str(self.path)]

    def seal_words(self) -> list[str]:
        """Return what closes it once everything below is mounted."""
        return ["--remount-ro", str(self.path)] if self.access is Access.NOTHING else []


class ProcessBounds(NamedTuple):
    """How much one process may use; None is without a bound."""

    memory_mb: int | None = None
    processes: int | None = None
    file_mb: int | None = None

    def words(self) -> list[str]:
        """Return the command that sets them: inside, since a limit on processes counts by namespace."""
        known = {
            "--data": self.memory_mb and self.memory_mb * _MB,
            "--nproc": self.processes,
            "--fsize": self.file_mb and self.file_mb * _MB,
        }
        limits = [f"{option}={value}" for option, value in known.items() if value is not None]
        return ["prlimit", "--core=0", *limits, "--"]


NO_BOUNDS: Final = ProcessBounds()


@dataclass(frozen=True)
class SandboxSpec:
    """One sandboxed command; *gate* is the command prefix of the egress client."""

    mounts: tuple[Mount, ...]
    cwd: Path
    bounds: ProcessBounds = NO_BOUNDS
    has_network: bool = True
    may_nest: bool = False
    gate: tuple[str, ...] = ()
    as_root: bool = False  # whether root starts it

    def around(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs *argv* in the sandbox."""
        mounts = in_mount_order(self.mounts)
        return [
            *(*_IGNORE_TERM, PROGRAM, *_ALWAYS),
            *(_NOT_ROOT if self.as_root else ()),
            *(() if self.may_nest else _NO_NESTING),
            *(() if self.has_network else ("--unshare-net",)),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(word for path in KERNEL for word in ("--ro-bind-try", str(path), str(path))),
            *(word for mount in mounts for word in mount.words()),
            *(word for mount in mounts for word in mount.seal_words()),
            *("--chdir", str(self.cwd), "--", *_DEFAULT_TERM, *self.bounds.words(), *self.gate, *argv),
        ]


def in_mount_order(mounts: Iterable[Mount]) -> list[Mount]:
    """Return *mounts* so that none covers a more exact one; of two at one path, the later counts."""
    latest = {mount.path: mount for mount in mounts}
    return sorted(latest.values(), key=lambda mount: (len(mount.path.parts), str(mount.path)))


# Where sockets, other people's files and secrets are; everywhere else an agent may read what you may.
HIDDEN: Final = tuple(
    map(
        Path,
        (
            *("/home", "/root", "/run"),
            *("/etc/ssh", "/etc/ssl/private", "/etc/kubernetes", "/etc/sudoers.d", "/var/spool", "/var/mail"),
        ),
    )
)
HIDDEN_FILES: Final = tuple(map(Path, ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/sudoers")))
# Bubblewrap leaves these open to root, who can write them without any capability: a core_pattern, for one,
# names a program that the kernel starts outside of every sandbox.
KERNEL: Final = tuple(
    Path("/proc") / name
    for name in (*("sys", "sysrq-trigger", "fs", "mtrr", "scsi", "acpi", "driver", "keys"), "dynamic_debug")
)
SCRATCH_DIRECTORIES: Final = tuple(map(Path, ("/var/tmp", "/dev/shm")))  # noqa: S108 - programs expect to write there
ROOT: Final = Path("/")
SCRATCH: Final = Path("/tmp")  # noqa: S108 - where a private directory is put
# What a sandbox keeps of what is hidden: names are resolved here, and some systems keep their programs here.
SYSTEM: Final = tuple(
    map(Path, ("/run/current-system", "/run/wrappers", "/run/booted-system", "/run/opengl-driver"))
)
RESOLVER: Final = Path("/etc/resolv.conf")

# Programs that people install for themselves, below their home: without them no agent starts.
TOOLCHAINS: Final = (
    *(".local/bin", ".local/lib", ".local/share/uv", ".local/share/pnpm", ".local/share/pipx", ".local/pipx"),
    *(".local/share/mise", ".local/share/claude", ".nvm", ".volta", ".bun", ".deno", ".pyenv", ".asdf"),
    *(".rustup", ".cargo/bin", ".sdkman", "go/bin", ".npm-global", ".opencode/bin", ".linuxbrew"),
)
# Directories of a home in whose `bin` are programs, and in which is much else.
SHARED: Final = ("", ".local", ".cargo", "go")
# What was installed for the checkout, and is no part of it.
DEPENDENCIES: Final = (".venv", "venv", "node_modules")
# Variables that name files which are needed wherever they are.
PATH_VARIABLES: Final = (
    *("VIRTUAL_ENV", "PYTHONPATH", "NODE_PATH", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
_LONGEST_NAME: Final = 256  # characters of a word that may name a program
# Where a sandbox has what would otherwise stand inside of the tree that is worked on.
SANDBOX_ROOT: Final = Path("/run/liza")
# Variables that name a directory which is another one in the sandbox.
REPLACED_VARIABLES: Final = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    "CARGO_HOME",
)
# Variables of ours that name files by which a server lets us in; hidden wherever they are.
CREDENTIAL_VARIABLES: Final = ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY")
# Below a home; hidden also where the directory that they are in is shown.
SECRETS: Final = (
    *(".ssh", ".aws", ".azure", ".kube", ".docker", ".gnupg", ".password-store", ".mozilla", ".terraform.d"),
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".env"),
    *(".pg_service.conf", ".postgresql"),
    *(".config/gcloud", ".config/gh", ".config/op", ".config/google-chrome", ".local/share/keyrings"),
    *(".cargo/credentials", ".cargo/credentials.toml"),
)


@dataclass(frozen=True)
class HostView:
    """What the host has that matters to a sandbox; all paths are resolved."""

    home: Path
    hidden: tuple[Path, ...]
    hidden_files: tuple[Path, ...]
    shown: tuple[Path, ...]
    secrets: tuple[Path, ...]  # below what is shown


class PrivateDirs(NamedTuple):
    """The private directories of a run, mounted where programs look for them."""

    home: Path
    scratch: Path


def host_mounts(around: HostView, own: PrivateDirs) -> list[Mount]:
    """Return the mounts of the host's files; the worktree and git come on top."""
    return [
        *(Mount(path, Access.NOTHING) for path in around.hidden),
        *(Mount(path, Access.ROOM) for path in SCRATCH_DIRECTORIES if path.is_dir()),
        *(Mount(path, Access.READ, Path(os.devnull)) for path in around.hidden_files),
        Mount(SCRATCH, Access.WRITE, own.scratch),
        Mount(around.home, Access.WRITE, own.home),
        *(Mount(path, Access.READ) for path in around.shown),
        *(_hiding_mount(path) for path in around.secrets if path not in around.shown),
    ]


def _hiding_mount(path: Path) -> Mount:
    return Mount(path, Access.NOTHING) if path.is_dir() else Mount(path, Access.READ, Path(os.devnull))


def is_below(path: Path, directories: Iterable[Path]) -> bool:
    # As text, and all at once: a run asks this some thousand times.
    return f"{path}/".startswith(tuple([f"{directory}".rstrip("/") + "/" for directory in directories]))


def sandbox_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return *environment* as it is right inside: home and scratch are where they always are."""
    kept = {name: value for name, value in environment.items() if name not in REPLACED_VARIABLES}
    # Compiled modules are known by path, size and second: the same for two trees that are seen at one path.
    cache = {"PYTHONPYCACHEPREFIX": str(SCRATCH / "pycache")} if "PYTHONPYCACHEPREFIX" in kept else {}
    return kept | {"HOME": str(home), "TMPDIR": str(SCRATCH)} | cache


def inspect_host(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    checkout: Path,
    show: Iterable[Path] = (),
    hide: Iterable[Path] = (),
) -> HostView:
    """Look at this machine: what is there to hide, files to *hide* too, and what is needed to run *argv*."""
    home = Path(environment.get("HOME") or Path.home())
    home = home.resolve() if home.is_dir() else Path.home().resolve()
    # A program with a home of its own needs what you installed in yours, and nothing else of it.
    own = Path.home().resolve()
    homes = (home,) if home == own else (home, own)
    hidden = [path for path in (*HIDDEN, own, checkout) if _is_directory(path) and path != ROOT]
    covered = (*hidden, home, SCRATCH)
    # By path once each: many of the hundred come by two names, and most are not there.
    named = dict.fromkeys((*_needed_paths(argv, environment, homes, checkout), *show))
    wanted = {Path(os.path.realpath(path)) for path in named if _is_seen(path)}
    # What stands elsewhere can be seen anyway; home, checkout and scratch themselves are never shown whole.
    shown = tuple(sorted(path for path in wanted if is_below(path, covered) and path not in covered))
    named_files = map(Path, files_named(os.environ, CREDENTIAL_VARIABLES))
    credentials = [path.resolve() for path in (*named_files, *hide)]
    hidden_files = (*HIDDEN_FILES, *(path for path in credentials if not is_below(path, covered)))
    secrets = (*(path for at in homes for path in _paths_in(at, SECRETS)), *credentials)
    return HostView(
        home=home,
        hidden=tuple(hidden),
        hidden_files=tuple(path for path in hidden_files if _is_seen(path)),
        shown=shown,
        secrets=tuple(path for path in secrets if _is_hidden_in(path, shown)),
    )


@lru_cache(16)
def _paths_in(directory: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the paths of *names*; kept, since each run asks for the same hundred."""
    return tuple(directory / name for name in names)


def _is_seen(path: Path) -> bool:
    """Return whether *path* exists and we may see it; a search path may lead through others' directories."""
    return os.path.exists(path)  # noqa: PTH110 - the other raises where we may not look


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _needed_paths(
    argv: Sequence[str], environment: Mapping[str, str], homes: Sequence[Path], checkout: Path
) -> Iterable[Path]:
    yield from SYSTEM
    yield RESOLVER.resolve()
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (path for home in homes for path in _paths_in(home, TOOLCHAINS))
    yield from _paths_in(checkout, DEPENDENCIES)
    for name in PATH_VARIABLES:
        yield from (
            Path(word) for word in environment.get(name, "").split(os.pathsep) if word.startswith("/")
        )
    path = environment.get("PATH", os.defpath)
    yield from (
        installation_root(Path(word), homes) for word in path.split(os.pathsep) if word.startswith("/")
    )
    # Any word may be a program: `timeout 600 tool`, or what speaks to an agent and starts it.
    for word in filter(_may_be_program, argv):
        if program := shutil.which(word, path=path):
            yield from _installation_paths(Path(program), homes)
    # A script of the user's may well be more than one file.
    named = [Path(word) for word in argv if word.startswith("/") and Path(word).is_file()]
    yield from (path for file in named for path in (file, file.parent))


def _may_be_program(word: str) -> bool:
    return bool(word) and not word.startswith("-") and len(word) < _LONGEST_NAME and "\n" not in word


def _installation_paths(program: Path, homes: Sequence[Path]) -> Iterable[Path]:
    for path in (program, program.resolve()):
        parts = path.parts
        if "node_modules" in parts:
            yield Path(*parts[: parts.index("node_modules") + 1])
        yield installation_root(path.parent, homes)


def installation_root(directory: Path, homes: Sequence[Path]) -> Path:
    """Return what has to be seen for the programs in *directory* to run: of `x/bin` mostly the whole of x."""
    shared = (ROOT, *(path for home in homes for path in _paths_in(home, SHARED)))
    return directory.parent if directory.name == "bin" and directory.parent not in shared else directory


def _is_hidden_in(path: Path, shown: Iterable[Path]) -> bool:
    return is_below(path, shown) and _is_seen(path) and not path.is_symlink()


def files_named(environment: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the files that variables of these *names* lead to: a setting or a login somewhere else."""
    values = (environment.get(name, "") for name in names)
    return tuple(value for value in values if value.startswith("/") and Path(value).is_file())


class RunPurpose(StrEnum):
    """What a run is for: an agent's own, or the project's commands that a gate runs."""

    AGENT = "agent"
    READY = "ready"  # the project's setup, in the home of an agent
    SETUP = "setup"
    COMMAND = "command"


class Tenant(NamedTuple):
    """Who runs in the sandbox: whose private directories it gets, and what it may write."""

    name: str
    task: str | None = None  # whose branch it may commit to
    writes: bool = True  # whether its working directory may be changed
    may_nest: bool = False  # whether it brings a sandbox of its own
    shows: tuple[str, ...] = ()  # what it needs of the user's home or elsewhere, to read
    keeps: tuple[str, ...] = ()  # what it needs of the user's home, to write: where it keeps its own login
    hosts: tuple[str, ...] = ()  # that its provider serves it from
    borrows: bool = True  # whether it finds what was installed in the user's checkout
    doing: RunPurpose = RunPurpose.AGENT
    inherits: bool = False  # whether a gate's command finds in its home what a setup left there


class Sandbox(Protocol):
    """Runs jobs in a sandbox."""

    @property
    def is_sandboxed(self) -> bool:
        """Whether a job really runs in a sandbox."""
        ...

    def path_inside(self, cwd: Path) -> Path:
        """Return the path that *cwd* has in the sandbox."""
        ...

    def wrap(self, job: Job, tenant: Tenant) -> AbstractContextManager[Job]:
        """Yield *job* as it must be run; its commits are imported at the end."""
        ...


class Unsandboxed:
    """Runs jobs without a sandbox."""

    is_sandboxed = False

    def path_inside(self, cwd: Path) -> Path:
        return cwd

    def wrap(self, job: Job, tenant: Tenant) -> AbstractContextManager[Job]:  # noqa: ARG002 - the protocol's
        return nullcontext(job)


UNSANDBOXED: Final = Unsandboxed()


class SandboxProbe(NamedTuple):
    """Result of probing the sandbox: why it does not work, and whether that may pass."""

    why: str | None
    is_transient: bool = False


def sandbox_obstacle() -> str | None:
    """Return why no sandbox works on this machine; None where one does."""
    return probe_sandbox().why


def probe_sandbox() -> SandboxProbe:
    """Probe the sandbox, again after a transient failure; the result is cached."""
    if host().SANDBOX_LACK:
        return SandboxProbe(host().SANDBOX_LACK)
    now = time.monotonic()
    if _last_probe and (not _last_probe[-1][1].is_transient or now < _last_probe[-1][0] + PROBE_AGAIN_AFTER):
        return _last_probe[-1][1]
    found = _probe_once()
    for pause in PAUSES:
        if not found.is_transient:
            break
        time.sleep(pause)
        found = _probe_once()
    _last_probe[:] = [(time.monotonic(), found)]
    return found


_last_probe: Final[list[tuple[float, SandboxProbe]]] = []  # the last trial, and when it was


def _probe_once() -> SandboxProbe:
    missing = [name for name in (PROGRAM, "prlimit", "env") if shutil.which(name) is None]
    if missing:
        return SandboxProbe(f"there is no {missing[0]}; {INSTALL}, util-linux and coreutils")
    mounts = (Mount(SCRATCH, Access.NOTHING),)
    trial = SandboxSpec(mounts, Path("/"), ProcessBounds(file_mb=1), has_network=False).around(["true"])
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=PROBE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        return SandboxProbe(f"{PROGRAM} cannot be tried: {error}", is_transient=True)
    except OSError as error:
        return SandboxProbe(f"{PROGRAM} cannot be tried: {error}", is_transient=error.errno in _SCARCE)
    if done.returncode == 0:
        return SandboxProbe(None)
    said = done.stderr.strip().splitlines()
    why = said[-1] if said else f"exit code {done.returncode}"
    is_killed = done.returncode < 0 or done.returncode > _SIGNALLED
    if is_killed or why.endswith(tuple(map(os.strerror, _SCARCE))):
        return SandboxProbe(f"{PROGRAM} was cut short ({why})", is_transient=True)
    return SandboxProbe(f"{PROGRAM} does not work here ({why}); allow unprivileged user namespaces to it")


# The home that a gate's command has: a new one each time, with what the project's setup put into it.
#
# Programs look into a home before they begin: `usercustomize.py`, `.npmrc`, `.cargo/config.toml`. What the
# tests of one attempt leave there would decide about the next, so nothing is left. Without a sandbox the
# home has your tools and their downloads as links, and your settings as copies that are gone after the run.

_USER_SITE: Final = ".local/lib"  # its entries are links one by one, so that none can be added to yours
# What programs downloaded: without it, each command would download it again.
DOWNLOADS: Final = (
    *(
        ".cache",
        ".npm/_cacache",
        ".cargo/registry",
        ".cargo/git",
        "go/pkg",
        ".m2/repository",
        ".gradle/caches",
    ),
    *(".gradle/wrapper", ".nuget/packages", ".ivy2/cache", ".pub-cache", ".gem", ".rbenv", ".composer/cache"),
)
# What tells programs where packages come from, and who you are.
SETTINGS: Final = (
    *(".gitconfig", ".config/git/config", ".npmrc", ".yarnrc", ".yarnrc.yml", ".cargo/config", ".netrc"),
    *(".cargo/config.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".config/pip/pip.conf"),
    *(".pip/pip.conf", ".config/uv/uv.toml", ".bundle/config", ".gemrc", ".condarc"),
)
# Variables that would lead out of the home again.
HOME_VARIABLES: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CARGO_HOME")


class GateHome:
    """The home of the commands of one worker's gates, in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self._kept = folder / "kept"

    def begin(self, *, inherits: bool) -> None:
        """Make it new: as the project's setup left it if it *inherits*, else empty."""
        remove(self.path)
        if inherits and self._kept.is_dir():
            _copy(self._kept, self.path)
        else:
            remove(self._kept)
            self.path.mkdir(parents=True)

    def keep(self) -> None:
        """Remember it as what the project's setup left."""
        remove(self._kept)
        self.path.rename(self._kept)

    def end(self) -> None:
        remove(self.path)

    def populate(self, user: Path) -> None:
        """Give it what a program needs of the home of the *user*, who runs it without a sandbox."""
        for name in (*TOOLCHAINS, *DOWNLOADS):
            if name != _USER_SITE and (user / name).is_dir():
                _link(self.path / name, user / name)
        for site in user.glob(f"{_USER_SITE}/python*/site-packages"):
            for entry in site.iterdir():
                _link(self.path / entry.relative_to(user), entry)
        for name in SETTINGS:
            if (user / name).is_file() and not os.path.lexists(self.path / name):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(user / name, self.path / name)

    def clear_settings(self) -> None:
        """Remove the copies of the user's settings, which may hold keys."""
        for name in SETTINGS:
            if not (self.path / name).is_dir():
                (self.path / name).unlink(missing_ok=True)


def environment_with_home(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* with *home* as the home."""
    return {name: value for name, value in environment.items() if name not in HOME_VARIABLES} | {
        "HOME": str(home)
    }


def _link(link: Path, target: Path) -> None:
    if not os.path.lexists(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _copy(source: Path, target: Path) -> None:
    """Copy a directory with all that it holds, sharing blocks where the file system can."""
    words = ("cp", "-a", "--reflink=auto", "--", str(source), str(target))
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode != 0:
        error = OSError(done.stderr.decode(errors="replace").strip()[-200:])
        raise DiskTrouble(f"copy {source}", error)
