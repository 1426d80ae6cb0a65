"""A private PostgreSQL: its own data, port and password, and gone with the process that started it."""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

START_TIMEOUT: Final = 60.0  # seconds, on a busy machine and after a crash
WHAT_IS_MISSING: Final = (
    "there is no PostgreSQL server here: install one (on Debian and Ubuntu: apt install postgresql), "
    "or name its programs by PG_BIN"
)


def find_programs() -> Path | None:
    """Return the directory of initdb and postgres: PG_BIN, the distribution's newest, or the PATH's."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    on_path = shutil.which("initdb")
    named = [Path(os.environ["PG_BIN"])] if os.environ.get("PG_BIN") else []
    others = [Path(on_path).resolve().parent] if on_path else []
    return next((path for path in [*named, *installed, *others] if (path / "initdb").exists()), None)


class PostgresServer:
    """A server that can be started, stopped, and killed in the middle of what it does."""

    def __init__(self, *, data: Path | None = None, port: int | None = None, **settings: str) -> None:
        programs = find_programs()
        if programs is None:
            raise RuntimeError(WHAT_IS_MISSING)
        self.programs = programs
        # Short, for a socket's path has at most 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="lzpg", dir="/tmp"))
        self.data = data or self.directory / "data"
        self.port = port or _free_port()
        self.password = secrets.token_hex(12)
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self._own = data is None
        # The server refuses to run as root.
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = next(one for one in pwd.getpwall() if one.pw_name in {"postgres", "nobody"})
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        self.directory.chmod(0o755)
        if self._own:
            self._initialize()

    def _initialize(self) -> None:
        secret = self.directory / "password"
        secret.write_text(self.password)
        secret.chmod(0o644)
        self.run(
            "initdb",
            *("-D", str(self.data), "-U", "owner", "--auth-local=trust", "--auth-host=scram-sha-256"),
            *(f"--pwfile={secret}", "-E", "UTF8", "--no-locale", "--no-sync"),
        )

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's own programs as the server's user."""
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            capture_output=True,
            cwd=self.directory,
            env=self.environment,
            **self._as,
        )

    def give(self, source: Path, name: str) -> None:
        """Put a file into the server's data, for its eyes alone."""
        target = self.data / name
        shutil.copyfile(source, target)
        target.chmod(0o600)
        if self._as:
            os.chown(target, self._as["user"], self._as["group"])

    @property
    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "PGPASSWORD": self.password}

    @property
    def address(self) -> str:
        return self.address_of("owner")

    def address_of(self, user: str, password: str | None = None, port: int | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{port or self.port}/postgres"

    def start(self) -> Self:
        """Start it, again where what is left of a killed one has to end first; return when it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "max_connections": "300",
            "shared_buffers": "64MB",
            "log_min_messages": "warning",
            **self.settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        deadline = time.monotonic() + START_TIMEOUT
        with (self.directory / "log").open("ab") as log:
            while True:
                self.process = subprocess.Popen(
                    [self.programs / "postgres", "-D", self.data, "-p", str(self.port), *options],
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    env=self.environment,
                    start_new_session=True,
                    preexec_fn=_die_with_parent,  # noqa: PLW1509 - also where the tests are killed
                    **self._as,
                )
                if self._answers(deadline):
                    return self

    def _answers(self, deadline: float) -> bool:
        process = self.process
        if process is None:
            raise RuntimeError("it was not started")
        ready = [str(self.programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while process.poll() is None:
            if subprocess.run(ready, check=False, env=self.environment).returncode == 0:
                return True
            if time.monotonic() > deadline:
                raise TimeoutError((self.directory / "log").read_text()[-2000:])
            time.sleep(0.03)
        if time.monotonic() > deadline:
            raise TimeoutError((self.directory / "log").read_text()[-2000:])
        time.sleep(0.2)
        return False

    def kill(self) -> None:
        """End the server as a power cut of its process would; its sessions notice and end, too."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(10)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def sql(self, text: str) -> str:
        """Return what the server prints to *text*, as its owner."""
        done = subprocess.run(
            [self.programs / "psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text, self.address],
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout.strip()

    def version(self) -> int:
        shown = subprocess.run(
            [self.programs / "postgres", "--version"], check=True, capture_output=True, text=True
        )
        found = re.search(r"(\d+)", shown.stdout)
        return int(found[1]) if found else 0

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGINT)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
