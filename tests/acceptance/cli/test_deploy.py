"""What is shipped for servers: systemd itself finds nothing wrong with it, and what it runs is there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from liza.board.location import VARIABLE
from liza.cli.main import parser
from liza.daemon.joining import parse_slots
from liza.daemon.reports.prometheus import parse_endpoint
from liza.errors import EXIT_CODES
from tests.support.repos import Home
from tests.support.shell import Shell

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer

ROOT: Final = Path(__file__).parents[3]
DEPLOY: Final = ROOT / "deploy"

UNITS: Final = DEPLOY / "systemd"
SERVICES: Final = sorted(UNITS.glob("*.service"))


def settings(unit: Path) -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(unit)
    return found


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_runs_a_command_that_liza_has(unit: Path) -> None:
    program, *words = shlex.split(settings(unit)["Service"]["ExecStart"])
    assert Path(program).name == "liza"
    assert parser().parse_args(words).run
    expected = settings(unit)["Service"].get("SuccessExitStatus", "0")
    assert int(expected) in EXIT_CODES


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here to ask")
@pytest.mark.parametrize("unit", sorted(UNITS.iterdir()), ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    """Of an instance, for that is what runs, with a program that is there."""
    for each in UNITS.iterdir():
        name = each.name.replace("@.", "@site.")
        (tmp_path / name).write_text(
            each.read_text().replace("/usr/local/bin/liza", shutil.which("true") or "")
        )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name.replace("@.", "@site.")],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "liza-" in line]
    assert ours == []


def manifests() -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))]
    return [document for text in texts for document in yaml.safe_load_all(text)]


def test_every_container_runs_words_that_liza_host_has() -> None:
    found = {one["kind"]: one["spec"] for one in manifests()}
    assert sorted(found) == ["Deployment", "ScaledJob", "TriggerAuthentication"]
    pods = (found["Deployment"]["template"]["spec"], found["ScaledJob"]["jobTargetRef"]["template"]["spec"])
    for pod in pods:
        (container,) = pod["containers"]
        args = parser().parse_args(["host", *container["args"]])
        assert parse_slots(args.slots)
        assert args.metrics is None or parse_endpoint(args.metrics).port == 9464
        assert pod["terminationGracePeriodSeconds"] >= 60
        assert container["securityContext"] == {"runAsNonRoot": True, "allowPrivilegeEscalation": False}
        assert [one["name"] for one in container["env"]] == ["LIZA_CLONE"]
        assert container["envFrom"] == [{"secretRef": {"name": "liza-board"}}]
    template = found["Deployment"]["template"]["metadata"]["labels"]
    assert found["Deployment"]["selector"]["matchLabels"] == template
    assert found["ScaledJob"]["jobTargetRef"]["template"]["spec"]["restartPolicy"] == "Never"
    (trigger,) = found["ScaledJob"]["triggers"]
    (secret,) = found["TriggerAuthentication"]["secretTargetRef"]
    assert (trigger["type"], secret["parameter"]) == ("postgresql", "connection")


@pytest.mark.hosts
def test_the_query_that_starts_machines_counts_what_waits(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = next(one for one in manifests() if one["kind"] == "ScaledJob")
    query = job["spec"]["triggers"][0]["metadata"]["query"]
    monkeypatch.setenv("LIZA_BOARD", f"{postgres.address}#liza")
    shell = Shell(Home(tmp_path / "project").directory)
    shell.ok("init", "a thing", "--no-baseline")
    assert postgres.sql(query) == "0"
    for name in ("t1", "t2"):
        shell.ok("task", "add", "--id", name, "--description", "do it", "--done-when", "done")
    waiting = ("--id", "t3", "--depends-on", "t1", "--description", "do it", "--done-when", "done")
    shell.ok("task", "add", *waiting)
    assert postgres.sql(query) == "2"  # the third has to wait for the first
    shell.ok("pause")
    assert postgres.sql(query) == "0"


def test_the_container_file_has_what_the_manifests_ask_of_it() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    said = dict(line.split(" ", 1) for line in text.splitlines() if line.startswith(("USER", "ENTRY", "CMD")))
    assert said["USER"].isdecimal()  # else `runAsNonRoot` cannot be told, and no pod starts
    assert f"--uid {said['USER']} liza" in text
    (extras,) = re.findall(r"/opt/liza\[([a-z,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras.split(",")) <= set(known)
    *_, script = yaml.safe_load(said["ENTRYPOINT"])
    assert f"COPY deploy/clone-and-host.sh {script}" in text
    assert parser().parse_args(["host", *yaml.safe_load(said["CMD"])]).run
    asked = set(re.findall(r"\$\{(\w+):\?", (DEPLOY / "clone-and-host.sh").read_text()))
    assert asked == {VARIABLE, "LIZA_CLONE"}  # the first is in the secret that both manifests name
    for path in (DEPLOY / "kubernetes").glob("*.yaml"):
        assert f"secret `liza-board` has {VARIABLE}" in path.read_text()


def test_the_container_file_copies_what_is_there() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    words = [shlex.split(line) for line in lines if line.startswith("COPY")]
    assert [(ROOT / source).exists() for _, source, _ in words] == [True, True]
    done = subprocess.run(
        ["sh", "-n", DEPLOY / "clone-and-host.sh"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    asked = subprocess.run(
        ["sh", DEPLOY / "clone-and-host.sh"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert asked.returncode != 0
    assert "LIZA_BOARD: set it to the address of the board" in asked.stderr
