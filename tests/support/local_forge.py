"""A forge in a directory beside the repository, and what stands in it after a run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from liza.forges.comments import NOMERGE_HEADING

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS: Final = {"workflow": "phased", "forge": {"local": {"path": "../forge"}}}
SIMPLE: Final = {"answer": {"verdict": "approve", "reason": "one file", "label": "SIMPLE"}}
COMPLEX: Final = {"answer": {"verdict": "approve", "reason": "much", "label": "COMPLEX"}}
PLAN: Final = {
    "answer": {"status": "done", "summary": "Write a file", "handoff": {"files_to_create": ["a file"]}}
}
WORK: Final[dict[str, Any]] = {
    "run": 'date +%s%N >> "$LIZA_TASK.txt"',
    "answer": {"status": "done", "summary": "Write it"},
}
APPROVE: Final = {"answer": {"verdict": "approve", "reason": "good"}}
REJECT: Final = {"answer": {"verdict": "reject", "reason": "no", "feedback": [{"message": "more"}]}}


def script(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever an agent may be told
    """Return a team that does every issue well in one round, as complex work."""
    return {
        "review/complexity_assessor": COMPLEX,
        "implement/thinker": PLAN,
        "implement/worker": WORK,
        **more,
    }


class ForgeFolder:
    """The directory of a forge: issues to write, pull requests and comments to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "issues").mkdir(parents=True, exist_ok=True)

    def issue(self, number: int, body: str = "Do it.", *, state: str = "open", label: str = "agent") -> None:
        head = f"---\ntitle: Write file {number}\nstate: {state}\nlabels: [{label}]\n---\n"
        (self.path / f"issues/{number}.md").write_text(f"{head}\n{body}\n")

    def pulls(self) -> dict[str, bool]:
        """Return every pull request by its branch, and whether it is a draft."""
        texts = [page.read_text() for page in sorted((self.path / "pulls").glob("*.md"))]
        return {_field("branch", text): _field("draft", text) == "true" for text in texts}

    def bases(self) -> dict[str, str]:
        texts = [page.read_text() for page in sorted((self.path / "pulls").glob("*.md"))]
        return {_field("branch", text): _field("base", text) for text in texts}

    def comments(self, kind: str) -> list[str]:
        """Return every comment on `issues` or `pulls`."""
        return [page.read_text() for page in sorted((self.path / kind).glob("*/*.md"))]

    def nomerge(self) -> list[str]:
        return [text for text in self.comments("pulls") if NOMERGE_HEADING in text]

    def headings(self) -> list[str]:
        """Return what each comment is about, with the issue or pull request that it stands on."""
        pages = sorted(self.path.glob("*/*/*.md"))
        return [
            f"{page.parent.parent.name}/{page.parent.name} {page.read_text().splitlines()[0]}"
            for page in pages
        ]


def _field(name: str, text: str) -> str:
    found = re.search(rf"^{name}: (.*)$", text, re.MULTILINE)
    assert found, text
    return found[1].strip("'\"")
