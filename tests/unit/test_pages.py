"""The pages that people read: their links lead somewhere, and the files that they name are there."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata
from pathlib import Path
from typing import Final

import pytest

import liza.cli.main  # noqa: F401 - which puts every command into the table
from liza.cli.registry import COMMANDS, GROUPS
from liza.domain.config import Config
from liza.domain.yaml_parse import parse_yaml
from scripts.specs import RENDERINGS
from tests.unit.test_project import LAYERS

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = ("docs", "specs", "specs/decisions")
PAGES: Final = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for folder in ("", *FOLDERS)
    for page in sorted((ROOT / folder).glob("*.md"))
}
MOST_LINES: Final = 90  # of the README: three minutes
FENCED: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"(?<!!)\[[^]\n]*(?:\n[^]\n]*)?\]\(([^)\s]+)\)")
HEADING: Final = re.compile(r"^#+ (.*)$", re.MULTILINE)
# A file of the project, perhaps without the directories that the page is about anyway.
FILE: Final = re.compile(r"`((?:liza|scripts|tests|specs|docs)/[\w./*-]+|[\w/]+/\w+\.py)`")
ABOUT: Final = ("", "liza", "liza/daemon", "liza/system/sandbox", "liza/gauntlet")
# A branch; whatever you call it; what a cycle writes into the checkout of its project.
NO_FILES: Final = {
    "liza/integration",
    "liza/gates/NAME.py",
    "docs/context/current_cycle.md",
    "docs/context/archive/YYYY-MM-DD_cycle-NNN.md",
}

# What was is told in the changelog.
TOLD: Final = [page for page in PAGES if page != "CHANGELOG.md"]
SPANS: Final = re.compile(r"`([^`]+)`")


def settings() -> set[str]:
    """Return every key of the settings, and of the sections of the board that are called like one."""
    keys = re.findall(r"^\| `(\w+\.\w+)", RENDERINGS["config"](), re.MULTILINE)
    sections = re.findall(r"^\| `(\w+)` \| (.*) \|$", RENDERINGS["sections"](), re.MULTILINE)
    return {*keys, *(f"{name}.{field}" for name, fields in sections for field in SPANS.findall(fields))}


def prose(page: str) -> str:
    """Return a page without its blocks of code."""
    return FENCED.sub("", PAGES[page])


def anchor(heading: str) -> str:
    """Return the name that a forge gives to *heading*."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    return {anchor(heading) for heading in HEADING.findall(prose(page))}


def dead_links(page: str) -> list[str]:
    """Return the links of *page* to a file, or a heading in one, that is not there."""
    found = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, heading = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        name = str(target.resolve().relative_to(ROOT.resolve()))
        if not target.exists() or (heading and heading not in anchors(name)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    """To a file that is there, and where the link names a heading, to that heading."""
    assert dead_links(page) == []


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("What `liza run` says, or ends", "what-liza-run-says-or-ends"),
        ("Sections of state.yaml", "sections-of-stateyaml"),
    ],
)
def test_an_anchor_is_what_a_forge_makes_of_a_heading(heading: str, expected: str) -> None:
    assert anchor(heading) == expected


@pytest.mark.parametrize("page", TOLD)
def test_files_that_are_named_are_there(page: str) -> None:
    """A file that was moved is moved in the pages, too."""
    named = set(FILE.findall(prose(page))) - NO_FILES

    assert {name for name in named if not any(list((ROOT / at).glob(name)) for at in ABOUT)} == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_index_leads_to_every_page_of_its_folder(folder: str) -> None:
    index = PAGES[f"{folder}/README.md"]
    pages = {page.removeprefix(f"{folder}/") for page in PAGES if page.rpartition("/")[0] == folder}

    assert {page for page in pages - {"README.md"} if f"]({page})" not in index} == set()


def test_decisions_are_numbered_without_gaps() -> None:
    """The number in the name is the number in the title."""
    pages = [page for page in PAGES if re.match(r"specs/decisions/\d", page)]
    titles = [PAGES[page].partition("\n")[0] for page in pages]

    assert [int(Path(page).name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    assert [int(title.removeprefix("# ").partition(".")[0]) for title in titles] == list(
        range(1, len(pages) + 1)
    )


@pytest.mark.parametrize("page", [page for page in PAGES if re.match(r"specs/decisions/\d", page)])
def test_a_decision_says_why_and_what_follows(page: str) -> None:
    headings = HEADING.findall(prose(page))

    assert [
        part
        for part in ("Context", "Decision", "Consequences", "Alternatives considered")
        if part not in headings
    ] == []


def test_the_readme_is_read_in_three_minutes() -> None:
    assert len(PAGES["README.md"].splitlines()) <= MOST_LINES


def test_every_layer_is_explained_in_its_order() -> None:
    """In CONTRIBUTING.md, as the test of the layers has them."""
    rows = re.findall(r"^\| `liza/(\w+)/` \|", PAGES["CONTRIBUTING.md"], re.MULTILINE)

    assert rows == [layer for layer in LAYERS if (ROOT / "liza" / layer).is_dir()]


def test_the_licence_is_said_and_there() -> None:
    """If the last part fails, the environment is older than pyproject.toml: `make check` renews it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (name,) = project["license-files"]

    assert project["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / name).read_text(encoding="utf-8")
    assert metadata("liza")["License-Expression"] == project["license"]
    assert metadata("liza").get_all("License-File") == [name]


@pytest.mark.parametrize("page", TOLD)
def test_commands_and_options_that_are_named_exist(page: str) -> None:
    """An option that does nothing, or a command that is gone, is found before somebody types it."""
    named = [span.split() for span in SPANS.findall(prose(page)) if span.startswith("liza ")]

    assert [words for words in named if not _exists(words[1:])] == []


def _exists(words: list[str]) -> bool:
    """Return whether what is typed behind `liza` is a command with options of its own."""
    name = next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), None)
    if name is None:
        return not words or words[0] in {*GROUPS, "COMMAND", "-C", "--help", "--version"}
    known = {flag for argument in COMMANDS[name].arguments for flag in argument.names} | {"--help"}
    return {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("page", TOLD)
def test_settings_that_are_named_exist(page: str) -> None:
    """As keys in a sentence (`limits.free_disk_mb`), or as a piece of liza.yaml."""
    keys = set(re.findall(r"`(\w+\.\w+)(?:[.:][^`]*)?`", prose(page)))

    assert {key for key in keys if key.partition(".")[0] in Config.model_fields} - settings() == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith(("README", "docs/"))])
def test_pieces_of_settings_can_be_copied(page: str) -> None:
    for text in re.findall(r"^```yaml\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL):
        Config.model_validate(parse_yaml(text).data)


@pytest.mark.parametrize("page", TOLD)
def test_targets_that_are_named_exist(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)

    assert set(re.findall(r"`make ([a-z-]+)`", prose(page))) - set(targets) == set()
