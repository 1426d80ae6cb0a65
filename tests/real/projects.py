"""Real projects from the registry, pinned, with their own tests; what is planted, mended and broken there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
PLACE: Final = Path(os.environ.get("LIZA_REAL_CACHE") or ROOT / ".real")
WHEELS: Final = PLACE / "wheels"
SOURCES: Final = PLACE / "sources"
MODULES: Final = PLACE / "modules"  # of npm, installed once for each project
TOOLS: Final = PLACE / "tools"  # an environment with pytest, as people have one on their PATH
# What projects need to be installed and tested, and what builds them.
PINNED: Final = (
    *("pytest==8.4.2", "freezegun==1.5.5", "pluggy==1.6.0", "iniconfig==2.1.0", "packaging==25.0"),
    *("pygments==2.19.2", "python-dateutil==2.9.0.post0", "six==1.17.0"),
    *("flit_core==3.12.0", "hatchling==1.27.0", "hatch-vcs==0.5.0", "setuptools-scm==9.2.0"),
    *("setuptools==80.9.0", "pathspec==0.12.1", "trove-classifiers==2025.9.11.17", "editables==0.5"),
)
NOTES: Final = "It was here.\n"


class Edit(NamedTuple):
    """A text in a file that is replaced; where there is none, the new text is added at the end."""

    path: str
    old: str
    new: str


class Real(NamedTuple):
    """One project, the commands that a person would write for it, and what is done to it."""

    name: str
    version: str
    sha256: str
    commands: tuple[str, ...]  # `{root}` is the checkout
    planted: Edit  # a mistake that no test of the project sees
    mended: Edit
    broken: Edit  # what the project's own tests do see
    proof: tuple[str, str]  # the path and the text of a test of what is mended
    excuse: tuple[str, str]  # of a test that what is broken passes
    wrong: str  # a command that cannot work
    suite: tuple[str, ...]  # its tests, run by hand in a tree
    is_npm: bool = False
    has_venv: bool = False  # with an editable installation of the project
    ignored: tuple[str, ...] = ()
    settings: str = ""  # more lines of liza.yaml

    @property
    def archive(self) -> Path:
        stem = self.name if self.is_npm else self.name.replace("-", "_")
        return SOURCES / f"{stem}-{self.version}{'.tgz' if self.is_npm else '.tar.gz'}"


def _python_excuse(folder: str) -> tuple[str, str]:
    text = (
        "import unittest\nfrom pathlib import Path\n\n\nclass NotesTest(unittest.TestCase):\n"
        "    def test_notes(self):\n"
        '        self.assertIn("here", Path(__file__).with_name("notes.txt").read_text())\n'
    )
    return f"{folder}/test_notes.py", text


PROJECTS: Final = (
    Real(
        name="itsdangerous",
        version="2.2.0",
        sha256="e0050c0b7da1eea53ffaf149c0cfbb5c6e2e2b69c4bef22c81fa6eb73e5f6173",
        commands=("{root}/.venv/bin/python -m pytest -q", ".venv/bin/python -m pytest"),
        planted=Edit(
            "src/itsdangerous/encoding.py",
            "",
            "\n\ndef text_to_int(text: str) -> int:\n    return bytes_to_int(base64_encode(text))\n",
        ),
        mended=Edit(
            "src/itsdangerous/encoding.py",
            "bytes_to_int(base64_encode(text))",
            "bytes_to_int(base64_decode(text))",
        ),
        broken=Edit("src/itsdangerous/encoding.py", ".rjust(8", ".ljust(8"),
        proof=(
            "tests/test_itsdangerous/test_text.py",
            (
                "from itsdangerous.encoding import base64_encode, int_to_bytes, text_to_int\n\n\n"
                "def test_text_to_int():\n"
                "    assert text_to_int(base64_encode(int_to_bytes(70000)).decode()) == 70000\n"
            ),
        ),
        excuse=_python_excuse("tests/test_itsdangerous"),
        wrong="{root}/.venv/bin/python -m pytset -q",
        suite=("{root}/.venv/bin/python", "-m", "pytest", "-q"),
        has_venv=True,
        ignored=(".venv/",),
    ),
    Real(
        name="boltons",
        version="25.0.0",
        sha256="e110fbdc30b7b9868cb604e3f71d4722dd8f4dcb4a5ddd06028ba8f1ab0b5ace",
        commands=("pytest", "python3 -m pytest -q"),
        planted=Edit("boltons/mathutils.py", "", "\n\ndef lerp(a, b, t):\n    return a + (b - a)\n"),
        mended=Edit("boltons/mathutils.py", "    return a + (b - a)\n", "    return a + (b - a) * t\n"),
        broken=Edit("boltons/mathutils.py", "min(max(x, lower), upper)", "min(max(x, upper), lower)"),
        proof=(
            "tests/test_lerp.py",
            "from boltons.mathutils import lerp\n\n\ndef test_lerp():\n    assert lerp(2, 4, 0.5) == 3\n",
        ),
        excuse=_python_excuse("tests"),
        wrong="pytset",
        suite=("python3", "-m", "pytest", "-q"),
    ),
    Real(
        name="humanize",
        version="4.12.3",
        sha256="8430be3a615106fdfceb0b2c1b41c4c98c6b0fc5cc59663a5539b111dd325fb0",
        commands=(".venv/bin/python -m pytest -q",),
        planted=Edit(
            "src/humanize/number.py", "", "\n\ndef dozens(value: int) -> int:\n    return value // 10\n"
        ),
        mended=Edit("src/humanize/number.py", "return value // 10\n", "return value // 12\n"),
        broken=Edit("src/humanize/number.py", "if value < 0:", "if value > 0:"),
        proof=(
            "tests/test_dozens.py",
            "from humanize.number import dozens\n\n\ndef test_dozens():\n    assert dozens(120) == 10\n",
        ),
        excuse=_python_excuse("tests"),
        wrong=".venv/bin/pyton -m pytest -q",
        suite=("{root}/.venv/bin/python", "-m", "pytest", "-q"),
        has_venv=True,
        ignored=(".venv/",),
        # It is made when the package is built, and git ignores it: no worktree has it by itself.
        settings="worktree: {copy: [src/humanize/_version.py]}\n",
    ),
    Real(
        name="more-itertools",
        version="10.7.0",
        sha256="9fddd5403be01a94b204faadcff459ec3568cf110265d3c54323e1e866ad29d3",
        commands=("make test",),
        planted=Edit(
            "more_itertools/recipes.py",
            "",
            "\n\ndef every_other(iterable):\n    return list(iterable)[1::2]\n",
        ),
        mended=Edit("more_itertools/recipes.py", "list(iterable)[1::2]\n", "list(iterable)[::2]\n"),
        broken=Edit(
            "more_itertools/recipes.py", "list(islice(iterable, n))", "list(islice(iterable, n + 1))"
        ),
        proof=(
            "tests/test_every_other.py",
            (
                "from unittest import TestCase\n\nfrom more_itertools.recipes import every_other\n\n\n"
                "class EveryOtherTests(TestCase):\n    def test_it(self):\n"
                "        self.assertEqual(every_other([1, 2, 3]), [1, 3])\n"
            ),
        ),
        excuse=_python_excuse("tests"),
        wrong="make tset",
        suite=("python3", "-m", "unittest", "-q"),
    ),
    Real(
        name="json-stable-stringify",
        version="1.0.1",
        sha256="70e228b750bf40ab69dda437f284992f1ea4c4bf9e788dc7fc586a6956256150",
        commands=("npm test",),
        planted=Edit(
            "index.js",
            "",
            "\nmodule.exports.names = function (obj) { return Object.keys(obj).sort().reverse(); };\n",
        ),
        mended=Edit("index.js", ".sort().reverse();", ".sort();"),
        broken=Edit("index.js", "space ? ': ' : ':'", "space ? '; ' : ';'"),
        proof=(
            "test/names.js",
            (
                "var test = require('tape');\nvar stringify = require('../');\n\n"
                "test('names are sorted', function (t) {\n    t.plan(1);\n"
                "    t.deepEqual(stringify.names({ b: 1, a: 2 }), ['a', 'b']);\n});\n"
            ),
        ),
        excuse=(
            "test/notes.js",
            (
                "var test = require('tape');\nvar fs = require('fs');\n\n"
                "test('notes are there', function (t) {\n    t.plan(1);\n"
                "    t.ok(fs.readFileSync(__dirname + '/notes.txt', 'utf8').length > 0);\n});\n"
            ),
        ),
        wrong="npm run tset",
        suite=("npm", "test"),
        is_npm=True,
        ignored=("node_modules/",),
    ),
)
