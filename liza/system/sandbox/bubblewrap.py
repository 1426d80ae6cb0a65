"""The cage around an agent: what it sees, what it may write, whom it reaches and how much it may use.

What is decided is pure: facts become mounts, and mounts the words of a bubblewrap command. Of two mounts the
more exact path wins, so that a secret inside of a directory that is shown stays hidden. What does not depend
on the machine is in tables; whether the machine can do it at all is tried, once a process.
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
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from liza.system.process import Job

PROGRAM: Final = "bwrap"
INSTALL: Final = "install bubblewrap (on Debian and Ubuntu: apt install bubblewrap)"
PATIENCE: Final = 10.0  # seconds that the trial may take; it takes ten milliseconds
PAUSES: Final = (0.2, 1.0, 3.0)  # seconds before the second, third and fourth trial, where one is cut short
FORGOTTEN: Final = 60.0  # seconds after which such a trial is made again
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
_DEAF: Final = ("env", "--ignore-signal=TERM")
_HEARING: Final = ("env", "--default-signal=TERM")


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

    def sealing(self) -> list[str]:
        """Return what closes it once everything below is mounted."""
        return ["--remount-ro", str(self.path)] if self.access is Access.NOTHING else []


class Bounds(NamedTuple):
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


NO_BOUNDS: Final = Bounds()


@dataclass(frozen=True)
class Cage:
    """One cage; *gate* are the words of a program in it that lets some of the network through."""

    mounts: tuple[Mount, ...]
    cwd: Path
    bounds: Bounds = NO_BOUNDS
    has_network: bool = True
    may_nest: bool = False
    gate: tuple[str, ...] = ()
    as_root: bool = False  # whether root starts it

    def around(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs *argv* in the cage."""
        mounts = ordered(self.mounts)
        return [
            *(*_DEAF, PROGRAM, *_ALWAYS),
            *(_NOT_ROOT if self.as_root else ()),
            *(() if self.may_nest else _NO_NESTING),
            *(() if self.has_network else ("--unshare-net",)),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"),
            *(word for path in KERNEL for word in ("--ro-bind-try", str(path), str(path))),
            *(word for mount in mounts for word in mount.words()),
            *(word for mount in mounts for word in mount.sealing()),
            *("--chdir", str(self.cwd), "--", *_HEARING, *self.bounds.words(), *self.gate, *argv),
        ]


def ordered(mounts: Iterable[Mount]) -> list[Mount]:
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
# names a program that the kernel starts outside of every cage.
KERNEL: Final = tuple(
    Path("/proc") / name
    for name in (*("sys", "sysrq-trigger", "fs", "mtrr", "scsi", "acpi", "driver", "keys"), "dynamic_debug")
)
ROOMS: Final = tuple(map(Path, ("/var/tmp", "/dev/shm")))  # noqa: S108 - programs expect to write there
ROOT: Final = Path("/")
SCRATCH: Final = Path("/tmp")  # noqa: S108 - where a private directory is put
# What a cage keeps of what is hidden: names are resolved here, and some systems keep their programs here.
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
NAMING: Final = (
    *("VIRTUAL_ENV", "PYTHONPATH", "NODE_PATH", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
)
# Where a cage has what would otherwise stand inside of the tree that is worked on.
INSIDE: Final = Path("/run/liza")
# Variables that name a directory which is another one in the cage.
REPLACED: Final = (
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"),
    "CARGO_HOME",
)
# Below a home; hidden also where the directory that they are in is shown.
SECRETS: Final = (
    *(".ssh", ".aws", ".azure", ".kube", ".docker", ".gnupg", ".password-store", ".mozilla", ".terraform.d"),
    *(".netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".vault-token", ".env"),
    *(".config/gcloud", ".config/gh", ".config/op", ".config/google-chrome", ".local/share/keyrings"),
    *(".cargo/credentials", ".cargo/credentials.toml"),
)


@dataclass(frozen=True)
class Surroundings:
    """What a machine has that matters to a cage; all paths are without links."""

    home: Path
    hidden: tuple[Path, ...]
    hidden_files: tuple[Path, ...]
    shown: tuple[Path, ...]
    secrets: tuple[Path, ...]  # below what is shown


class Privacy(NamedTuple):
    """The directories that a run has for itself, seen at the places where programs look for them."""

    home: Path
    scratch: Path


def surrounding(around: Surroundings, own: Privacy) -> list[Mount]:
    """Return what a cage sees of the machine; the worktree and git come on top."""
    return [
        *(Mount(path, Access.NOTHING) for path in around.hidden),
        *(Mount(path, Access.ROOM) for path in ROOMS if path.is_dir()),
        *(Mount(path, Access.READ, Path(os.devnull)) for path in around.hidden_files),
        Mount(SCRATCH, Access.WRITE, own.scratch),
        Mount(around.home, Access.WRITE, own.home),
        *(Mount(path, Access.READ) for path in around.shown),
        *(_hiding(path) for path in around.secrets if path not in around.shown),
    ]


def _hiding(path: Path) -> Mount:
    return Mount(path, Access.NOTHING) if path.is_dir() else Mount(path, Access.READ, Path(os.devnull))


def is_below(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)


def environment_in(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return *environment* as it is right inside: home and scratch are where they always are."""
    kept = {name: value for name, value in environment.items() if name not in REPLACED}
    # Compiled modules are known by path, size and second: the same for two trees that are seen at one path.
    cache = {"PYTHONPYCACHEPREFIX": str(SCRATCH / "pycache")} if "PYTHONPYCACHEPREFIX" in kept else {}
    return kept | {"HOME": str(home), "TMPDIR": str(SCRATCH)} | cache


def surveyed(
    argv: Sequence[str], environment: Mapping[str, str], *, checkout: Path, show: Iterable[Path] = ()
) -> Surroundings:
    """Look at this machine: what is there to hide, and what of that is needed to run *argv*."""
    home = Path(environment.get("HOME") or Path.home())
    home = home.resolve() if home.is_dir() else Path.home().resolve()
    # A program with a home of its own needs what you installed in yours, and nothing else of it.
    homes = (home, Path.home().resolve())
    hidden = [path for path in (*HIDDEN, *homes[1:], checkout) if _is_directory(path) and path != ROOT]
    covered = (*hidden, home, SCRATCH)
    wanted = {
        path.resolve() for path in (*_needed(argv, environment, homes, checkout), *show) if _is_seen(path)
    }
    # What stands elsewhere can be seen anyway; home, checkout and scratch themselves are never shown whole.
    shown = tuple(sorted(path for path in wanted if is_below(path, covered) and path not in covered))
    return Surroundings(
        home=home,
        hidden=tuple(hidden),
        hidden_files=tuple(path for path in HIDDEN_FILES if _is_seen(path)),
        shown=shown,
        secrets=tuple(
            path for at in homes for path in (at / name for name in SECRETS) if _is_hidden_in(path, shown)
        ),
    )


def _is_seen(path: Path) -> bool:
    """Tell whether *path* is there for us; a search path may lead through directories that are not ours."""
    return os.path.exists(path)  # noqa: PTH110 - the other raises where we may not look


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _needed(
    argv: Sequence[str], environment: Mapping[str, str], homes: Sequence[Path], checkout: Path
) -> Iterable[Path]:
    yield from SYSTEM
    yield RESOLVER.resolve()
    yield from (Path(sys.prefix), Path(sys.base_prefix))
    yield from (home / name for home in homes for name in TOOLCHAINS)
    yield from (checkout / name for name in DEPENDENCIES)
    for name in NAMING:
        yield from (
            Path(word) for word in environment.get(name, "").split(os.pathsep) if word.startswith("/")
        )
    path = environment.get("PATH", os.defpath)
    yield from (installation(Path(word), homes) for word in path.split(os.pathsep) if word.startswith("/"))
    if program := shutil.which(argv[0], path=path):
        yield from _with_installation(Path(program), homes)
    # A script of the user's may well be more than one file.
    named = [Path(word) for word in argv if word.startswith("/") and Path(word).is_file()]
    yield from (path for file in named for path in (file, file.parent))


def _with_installation(program: Path, homes: Sequence[Path]) -> Iterable[Path]:
    for path in (program, program.resolve()):
        parts = path.parts
        if "node_modules" in parts:
            yield Path(*parts[: parts.index("node_modules") + 1])
        yield installation(path.parent, homes)


def installation(directory: Path, homes: Iterable[Path]) -> Path:
    """Return what has to be seen for the programs in *directory* to run: of `x/bin` mostly the whole of x."""
    shared = {ROOT, *(home / name for home in homes for name in SHARED)}
    return directory.parent if directory.name == "bin" and directory.parent not in shared else directory


def _is_hidden_in(path: Path, shown: Iterable[Path]) -> bool:
    return is_below(path, shown) and _is_seen(path) and not path.is_symlink()


def files_named(environment: Mapping[str, str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the files that variables of these *names* lead to: a setting or a login somewhere else."""
    values = (environment.get(name, "") for name in names)
    return tuple(value for value in values if value.startswith("/") and Path(value).is_file())


class Doing(StrEnum):
    """What a run is for: an agent's own, or the project's commands that a gate runs."""

    AGENT = "agent"
    READY = "ready"  # the project's setup, in the home of an agent
    SETUP = "setup"
    COMMAND = "command"


class Visit(NamedTuple):
    """Who is to be caged: whose private directories it gets, and what it may change."""

    name: str
    task: str | None = None  # whose branch it may commit to
    writes: bool = True  # whether its working directory may be changed
    may_nest: bool = False  # whether it brings a sandbox of its own
    shows: tuple[str, ...] = ()  # what it needs of the user's home or elsewhere, to read
    keeps: tuple[str, ...] = ()  # what it needs of the user's home, to write: where it keeps its own login
    hosts: tuple[str, ...] = ()  # that its provider serves it from
    borrows: bool = True  # whether it finds what was installed in the user's checkout
    doing: Doing = Doing.AGENT
    inherits: bool = False  # whether a gate's command finds in its home what a setup left there


class Warden(Protocol):
    """Puts jobs into cages."""

    @property
    def is_caging(self) -> bool:
        """Tell whether a job will really be in a cage."""
        ...

    def path_inside(self, cwd: Path) -> Path:
        """Return the path at which a job that runs in *cwd* finds itself."""
        ...

    def caged(self, job: Job, visit: Visit) -> AbstractContextManager[Job]:
        """Give *job* as it must be run; what the run did for keeps is taken over at the end."""
        ...


class Unguarded:
    """Lets everybody run free."""

    is_caging = False

    def path_inside(self, cwd: Path) -> Path:
        return cwd

    def caged(self, job: Job, visit: Visit) -> AbstractContextManager[Job]:  # noqa: ARG002 - the protocol's
        return nullcontext(job)


UNGUARDED: Final = Unguarded()


class Trial(NamedTuple):
    """What came of trying a cage: why there is none, and whether that may be another time."""

    why: str | None
    is_passing: bool = False


def obstacle() -> str | None:
    """Return why nothing can be caged on this machine, as a sentence without its end; None where it can."""
    return tried().why


def tried() -> Trial:
    """Try a cage, again where the trial itself was cut short; what is found out is known from then on."""
    now = time.monotonic()
    if _known and (not _known[-1][1].is_passing or now < _known[-1][0] + FORGOTTEN):
        return _known[-1][1]
    found = _try()
    for pause in PAUSES:
        if not found.is_passing:
            break
        time.sleep(pause)
        found = _try()
    _known[:] = [(time.monotonic(), found)]
    return found


_known: Final[list[tuple[float, Trial]]] = []  # the last trial, and when it was


def _try() -> Trial:
    missing = [name for name in (PROGRAM, "prlimit", "env") if shutil.which(name) is None]
    if missing:
        return Trial(f"there is no {missing[0]}; {INSTALL}, util-linux and coreutils")
    mounts = (Mount(SCRATCH, Access.NOTHING),)
    trial = Cage(mounts, Path("/"), Bounds(file_mb=1), has_network=False).around(["true"])
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        return Trial(f"{PROGRAM} cannot be tried: {error}", is_passing=True)
    except OSError as error:
        return Trial(f"{PROGRAM} cannot be tried: {error}", is_passing=error.errno in _SCARCE)
    if done.returncode == 0:
        return Trial(None)
    said = done.stderr.strip().splitlines()
    why = said[-1] if said else f"exit code {done.returncode}"
    is_killed = done.returncode < 0 or done.returncode > _SIGNALLED
    if is_killed or why.endswith(tuple(map(os.strerror, _SCARCE))):
        return Trial(f"{PROGRAM} was cut short ({why})", is_passing=True)
    return Trial(f"{PROGRAM} does not work here ({why}); allow unprivileged user namespaces to it")
