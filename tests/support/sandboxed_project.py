"""A project with secrets around it, and agents in a real sandbox in the middle of it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.agents.command import CommandAgent
from liza.agents.protocol import Brief, Reply
from liza.daemon.project_sandbox import ProjectSandbox
from liza.domain.answers import Step
from liza.domain.config import SandboxConfig
from liza.domain.model import Role
from liza.system.run_control import RunControl, RunLimits
from liza.system.sandbox.bubblewrap import sandbox_obstacle
from tests.support.repos import INTEGRATION, Home

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "hunter2-hunter2-hunter2"  # noqa: S105 - the test is that it does not get out
KEPT_IN: Final = (".ssh/id_rsa", ".aws/credentials", ".config/gcloud/token", ".kube/config", ".netrc")
MORE: Final = (".docker/config.json", ".gnupg/key", ".cargo/credentials.toml", ".gitconfig")


def skip_without_sandbox() -> None:
    """Skip where there is no sandbox: not every machine lets one be built."""
    why = sandbox_obstacle()
    if why:
        pytest.skip(f"the sandbox is not tested: {why}")


class SandboxedProject:
    """One task's worktree and its sandboxed agent; t2 is another task, beside it."""

    def __init__(self, directory: Path, **sandbox: Any) -> None:  # noqa: ANN401 - whatever the settings may be
        skip_without_sandbox()
        self.user = Home(directory / "project")
        self.person = directory / "person"  # the user's home
        for name in (*KEPT_IN, *MORE):
            path = self.person / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"[x]\n\ty = {SECRET}\n")
        self.home = self.user.directory / ".liza"
        (self.home / "runs" / "old").mkdir(parents=True)
        (self.home / "runs" / "old" / "prompt.md").write_text(SECRET)
        (self.home / "state.yaml").write_text(SECRET)
        self.user.write(".env", SECRET)
        self.user.git("update-ref", INTEGRATION, self.user.base)
        self.user.git("config", "remote.origin.url", f"https://me:{SECRET}@example.org/x.git")
        self.worktree, self.agent = self.user.task("t1")
        self.other, _ = self.user.task("t2")
        settings = SandboxConfig.model_validate({"mode": "require", **sandbox})
        self.guard = ProjectSandbox(self.home, self.user.repository, settings)
        self.runs = 0

    def run(self, script: str, *, stop: RunControl | None = None, **changes: object) -> Reply:
        """Run *script* by a shell in the sandbox."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.person), "MY_PASSWORD": SECRET}
        command = CommandAgent(["/bin/sh", "-c", script], environment=environment, sandbox=self.guard)
        return command.run(self.brief(**changes), stop or RunControl())

    def python(self, code: str, **changes: object) -> Reply:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.person)}
        command = CommandAgent(
            [sys.executable, "-I", "-c", code], environment=environment, sandbox=self.guard
        )
        return command.run(self.brief(**changes), RunControl())

    def brief(self, **changes: object) -> Brief:
        self.runs += 1
        run = f"coder-1.{self.runs}"
        return Brief.model_validate(
            {
                "run": run,
                "role": Role.CODER,
                "step": Step.IMPLEMENT,
                "task": "t1",
                "prompt": "go\n",
                "cwd": self.worktree.path,
                "folder": self.home / "runs" / run,
                "limits": RunLimits(total=60),
                **changes,
            }
        )

    def said(self) -> str:
        """Return all that the last run printed."""
        folder = self.home / "runs" / f"coder-1.{self.runs}"
        return (folder / "stdout").read_text() + (folder / "stderr").read_text()

    def outside(self, *, but: str) -> dict[str, object]:
        """Return everything that no agent may change, as it is now; the branch *but* is its own."""
        git = self.user.directory / ".git"
        watched = [self.person, self.home / "state.yaml", self.other.path, self.other.admin, git / "info"]
        watched += [git / "config", git / "hooks", git / "packed-refs", git / "HEAD", git / "index"]
        files = [path for root in watched for path in ([root] if root.is_file() else root.rglob("*"))]
        return {
            "files": {str(path): path.read_bytes() for path in files if path.is_file()},
            "refs": [line for line in self.user.git("for-each-ref").splitlines() if not line.endswith(but)],
            "checkout": self.user.git("status", "--porcelain", GIT_OPTIONAL_LOCKS="0"),
            "objects": self.user.git("fsck", "--full", "--no-dangling"),
        }
