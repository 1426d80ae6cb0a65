"""A `gh` for tests that repeats a transcript of the real one, and fails where it is called otherwise."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

TRANSCRIPT: Final = "transcript.jsonl"
WRONG: Final = 97


def install(folder: Path, transcript: Path) -> Path:
    """Put a gh that repeats *transcript* into *folder*; return the file with what is left of it."""
    folder.mkdir()
    program = folder / "gh"
    source = Path(__file__).read_text(encoding="utf-8")
    program.write_text(f"#!{sys.executable} -SE\n{source}", encoding="utf-8")
    program.chmod(0o755)
    left = folder / TRANSCRIPT
    left.write_text(transcript.read_text(encoding="utf-8"), encoding="utf-8")
    return left


def main() -> None:
    path = Path(__file__).with_name(TRANSCRIPT)
    call, *rest = path.read_text(encoding="utf-8").splitlines()
    said = json.loads(call)
    given = [sys.argv[1:], sys.stdin.read()]
    if given != [said["words"], said["stdin"]]:
        sys.stderr.write(f"expected {said['words']} {said['stdin']!r}, not {given}\n")
        sys.exit(WRONG)
    path.write_text("".join(f"{line}\n" for line in rest), encoding="utf-8")
    sys.stdout.write(said["output"])
    sys.stderr.write(said["said"])
    sys.exit(said["code"])


if __name__ == "__main__":
    main()
