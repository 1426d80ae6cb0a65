"""Conflicts that take no thought, and the many that look like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.repo.conflicts import Versions, regions, resolve_file


def resolved(path: str, base: str | None, ours: str, theirs: str) -> str | None:
    return resolve_file(Versions(path, base, ours, theirs))


class TestWhiteSpace:
    @pytest.mark.parametrize("path", ["a.py", "a.md", "a.unknown", "Makefile"])
    def test_a_side_that_only_tidied_gives_way(self, path: str) -> None:
        """Whoever changed what the line says wins, whichever side it is."""
        assert resolved(path, "x = 1  \n", "x = 1\n", "x = 2  \n") == "x = 2  \n"
        assert resolved(path, "x = 1  \n", "x = 2  \n", "x = 1\n") == "x = 2  \n"

    def test_the_same_change_with_other_spaces(self) -> None:
        """Ours is as good as theirs."""
        assert resolved("a.py", "x = 1\n", "x = 2\n", "x=2  \n") == "x = 2\n"
        assert resolved("a.ts", "f(a)\n", "f(a, b)\n", "f( a,b )\n") == "f(a, b)\n"

    def test_line_ends(self) -> None:
        """A side that turned the file to CRLF and nothing else."""
        assert resolved("a.c", "a;\nb;\n", "a;\r\nb;\r\n", "a;\nc;\n") == "a;\nc;\n"

    def test_indentation_where_it_means_nothing(self) -> None:
        """A formatter ran over one side."""
        assert (
            resolved("a.js", "  f();\n  g();\n", "\tf();\n\tg();\n", "  f();\n  h();\n") == "  f();\n  h();\n"
        )

    @pytest.mark.parametrize(
        ("path", "base", "ours", "theirs"),
        [
            ("a.py", "  f()\n", "    f()\n", "  g()\n"),
            ("a.yaml", "a:\n  b: 1\n", "a:\nb: 1\n", "a:\n  b: 2\n"),
            ("a.sh", "x=1\n", "x = 1\n", "x=2\n"),
            ("a.py", "s = 'a b'\n", "s = 'a  b'\n", "s = 'c'\n"),
            ("a.c", "int a;\n", "inta;\n", "int b;\n"),
            ("a.c", "x = a - -b;\n", "x = a--b;\n", "x = a - -c;\n"),
            ("a.md", "a\nb\n", "a\n\nb\n", "a\nc\n"),
        ],
    )
    def test_space_that_means_something(self, path: str, base: str, ours: str, theirs: str) -> None:
        """In strings, in front of Python, between words, between paragraphs."""
        assert resolved(path, base, ours, theirs) is None

    def test_both_added_the_same_file_but_for_space(self) -> None:
        """Any other difference between two new files takes thought."""
        assert resolved("a.py", None, "x = 1\n", "x = 1   \n") == "x = 1\n"
        assert resolved("a.py", None, "", "x = 1\n") == "x = 1\n"
        assert resolved("a.py", None, "x = 1\n", "y = 1\n") is None


class TestImports:
    def test_python(self) -> None:
        """Both added one, in order: all are there, in order."""
        base = "import os\nimport sys\n\nX = 1\n"
        ours = "import json\nimport os\nimport sys\n\nX = 1\n"
        theirs = "import argparse\nimport os\nimport sys\n\nX = 1\n"
        assert (
            resolved("a.py", base, ours, theirs)
            == "import argparse\nimport json\nimport os\nimport sys\n\nX = 1\n"
        )

    def test_one_side_sorted_and_the_other_added(self) -> None:
        """The order is ours, and what is new comes after it."""
        base = "import sys\nimport os\n"
        assert resolved("a.py", base, "import os\nimport sys\n", "import sys\nimport os\nimport re\n") == (
            "import os\nimport sys\nimport re\n"
        )

    @pytest.mark.parametrize(
        ("path", "base", "one", "other"),
        [
            ("a.ts", "", 'import { a } from "./a";\n', 'import { b } from "./b";\n'),
            ("a.jsx", "", "import React from 'react'\n", "import * as d from 'd'\n"),
            ("a.js", "", "const a = require('a');\n", "const b = require('b');\n"),
            ("a.c", "", "#include <stdio.h>\n", '#include "own.h"\n'),
            ("a.go", "", '\t"fmt"\n', '\tlog "github.com/x/log"\n'),
            ("A.java", "", "import a.b.C;\n", "import static a.b.D.e;\n"),
            ("a.rs", "", "use std::fs;\n", "use crate::x as y;\n"),
        ],
    )
    def test_other_languages(self, path: str, base: str, one: str, other: str) -> None:
        """Ours and theirs, each once."""
        found = resolved(path, f"top\n{base}\nrest\n", f"top\n{one}\nrest\n", f"top\n{other}\nrest\n")
        assert found
        assert sorted(found.split("\n")) == sorted(f"top\n{one}{other}\nrest\n".split("\n"))

    @pytest.mark.parametrize(
        ("path", "base", "ours", "theirs"),
        [
            ("a.py", "import os\n", "import json\n", "import os\nimport re\n"),
            ("a.py", "", "import json\n", "import ujson as json\n"),
            ("a.py", "", "from a import x\n", "from b import x\n"),
            ("a.py", "from a import x\n", "from a import x, y\n", "from a import x, z\n"),
            ("a.py", "import a\n", "import a\nimport b\n", "import a\nsetup()\nimport c\n"),
            (
                "a.py",
                "import a\n",
                "import b\nimport a\n",
                "try:\n    import c\nfinally:\n    pass\nimport a\n",
            ),
            ("a.ts", "", 'import { x } from "./a";\n', 'import { y as x } from "./b";\n'),
            ("A.java", "", "import a.List;\n", "import b.List;\n"),
            ("a.css", "", '@import "a";\n', '@import "b";\n'),
        ],
    )
    def test_what_takes_thought(self, path: str, base: str, ours: str, theirs: str) -> None:
        """An import that went, a name with two sources, code between imports."""
        assert resolved(path, f"top\n{base}end\n", f"top\n{ours}end\n", f"top\n{theirs}end\n") is None

    def test_the_same_import_on_both_sides_is_there_once(self) -> None:
        """Together with one that only one side has."""
        base = "import os\nX = 1\n"
        ours = "import os\nimport re\nX = 1\n"
        theirs = "import ast\nimport os\nimport re\nimport sys\nX = 1\n"
        found = resolved("a.py", base, ours.replace("X = 1", "import json\nX = 1"), theirs)
        assert found
        assert sorted(found.split()) == sorted(
            "import ast import os import re import json import sys X = 1".split()  # noqa: SIM905 - words
        )


class TestAdditions:
    def test_two_functions_at_the_end(self) -> None:
        """Ours first, then theirs."""
        base = "X = 1\n"
        ours = "X = 1\n\n\ndef one():\n    return 1\n"
        theirs = "X = 1\n\n\ndef two():\n    return 2\n"
        assert resolved("a.py", base, ours, theirs) == (
            "X = 1\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2\n"
        )

    def test_two_methods(self) -> None:
        """At the same depth."""
        base = "class A:\n    x = 1\n"
        ours = f"{base}\n    def one(self):\n        return self.x\n"
        theirs = f"{base}\n    @property\n    def two(self):\n        return self.x\n"
        found = resolved("a.py", base, ours, theirs)
        assert found == f"{base}\n    def one(self):\n        return self.x\n{theirs[len(base) :]}"

    def test_a_last_line_that_does_not_end(self) -> None:
        """It is ended before the other's first."""
        assert resolved("a.md", "a\n", "a\n- one", "a\n- two") == "a\n- one\n- two"

    @pytest.mark.parametrize(
        ("path", "one", "other"),
        [
            ("a.md", "- one\n", "- two\n"),
            (".gitignore", "*.pyc\n", "dist/\n"),
            ("requirements.txt", "click==8\n", "rich==13\n"),
            ("a.py", "A = 1\n", "B = 2\n"),
            ("a.py", "@fixture\ndef a():\n    return 1\n\n", "@fixture\ndef b():\n    return 2\n\n"),
            ("a.js", "function a() {\n  return 1;\n}\n", "function b() {\n  return 2;\n}\n"),
            ("a.js", '  "a",\n', '  "b",\n'),
            ("a.go", "const A = 1\n", "const B = 2\n"),
            ("a.c", "int a(void) {\n    return 1;\n}\n", "int b(void) {\n    return 2;\n}\n"),
            ("a.ini", "a = 1\n", "b = 2\n"),
            ("a.yaml", "a: 1\n", "b: 2\n"),
        ],
    )
    def test_both_stay(self, path: str, one: str, other: str) -> None:
        """In every language, between lines that nobody touched."""
        frame = "# top\n{}# end\n" if not path.endswith((".js", ".c", ".go")) else "// top\n{}// end\n"
        found = resolved(path, frame.format(""), frame.format(one), frame.format(other))
        assert found == frame.format(one + other)

    def test_json(self) -> None:
        """With the commas that it needs."""
        base = '{\n  "z": 0\n}\n'
        ours = '{\n  "a": 1,\n  "z": 0\n}\n'
        assert (
            resolved("a.json", base, ours, ours.replace("a", "b")) == '{\n  "a": 1,\n  "b": 1,\n  "z": 0\n}\n'
        )
        assert resolved("a.json", base, ours, ours.replace("1", "2")) is None

    @pytest.mark.parametrize(
        ("path", "one", "other"),
        [
            ("a.py", "def f():\n    return 1\n", "def f():\n    return 2\n"),
            ("a.py", "X = 1\n", "X = 2\n"),
            ("a.py", "X = 1\n", "Y = X + 1\n"),
            ("a.py", "x += 1\n", "x *= 2\n"),
            ("a.py", "    return 1\n", "    return 2\n"),
            ("a.py", "def f():\n    pass\n", "    x = 2\n"),
            ("a.py", "@cached\n", "def g():\n    pass\n"),
            ("a.py", "# about what follows\n", "def g():\n    pass\n"),
            ("a.py", "if a:\n", "if b:\n"),
            ("a.py", "else:\n    x = 1\n", "else:\n    y = 1\n"),
            ("a.py", '"a"\n', '"b"\n'),
            ("a.py", "x = (\n", "y = (\n"),
            ("a.js", "}\n\nfunction a() {\n", "}\n\nfunction b() {\n"),
            ("a.js", "  .then(a)\n", "  .then(b)\n"),
            ("a.js", "  a\n", "  b\n"),
            ("a.js", "  a,\n", "  b\n"),
            ("a.rs", "    x + 1\n", "    x + 2\n"),
            ("a.rs", "#[test]\n", "fn a() {}\n"),
            ("a.go", "func (t T) A() {\n}\n", "func (t T) A() {\n\tx()\n}\n"),
            ("requirements.txt", "click==8\n", "click==7\n"),
            ("a.md", "## Added\n- one\n", "## Added\n- two\n"),
            ("a.yaml", "a: 1\n", "a: 2\n"),
            ("a.toml", "[a]\nx = 1\n", "[a]\nx = 2\n"),
            ("a.toml", "x = 1\n", "x = 2\n"),
        ],
    )
    def test_what_takes_thought(self, path: str, one: str, other: str) -> None:
        """The same name twice, order that matters, halves of something, lines that belong to a neighbour."""
        frame = "top\n{}end\n"
        assert resolved(path, frame.format(""), frame.format(one), frame.format(other)) is None

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ("a\nB\nc\nd\n", "a\nb2\nc\nd\n"),
            ("a\nc\nd\n", "a\nbb\nc\nd\n"),
            ("a\nb\nx\nd\n", "a\nb\ny\nc\nd\n"),
        ],
        ids=["both changed", "one deleted", "one changed and one added"],
    )
    def test_a_changed_or_deleted_line(self, ours: str, theirs: str) -> None:
        """Then somebody has to know what was meant."""
        assert resolved("a.md", "a\nb\nc\nd\n", ours, theirs) is None

    def test_a_result_that_does_not_parse_is_none(self) -> None:
        """As where each addition was right only alone."""
        base = "x = [\n    1,\n]\n"
        ours = "x = [\n    1,\n    *range(\n        2\n    )\n]\n"
        theirs = "x = [\n    1,\n    *range(\n        3\n    )\n]\n"
        assert resolved("a.py", base, ours, theirs) is None

    def test_one_hard_region_spoils_the_file(self) -> None:
        """Half a file resolved is a conflict."""
        base = "a\n\n1\n2\n3\n\nz\n"
        ours = "a\n- x\n\n1\n2\n3\n\nZ\n"
        assert resolved("a.md", base, ours, ours.replace("x", "y").replace("Z", "ZZ")) is None


class TestRegions:
    lines = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), max_size=8)

    @given(lines, lines, lines)
    def test_nothing_is_lost_and_nothing_invented(
        self, base: list[str], ours: list[str], theirs: list[str]
    ) -> None:
        """Each side's lines can be read back from the regions, and one-sided changes are taken whole."""
        pieces = list(regions(base, ours, theirs))
        for side, lines in enumerate((base, ours, theirs)):
            assert [line for piece in pieces for line in piece[side]] == lines
        assert [line for piece in regions(base, base, theirs) for line in piece.settled or []] == theirs
        assert [line for piece in regions(base, ours, base) for line in piece.settled or []] == ours
        assert [line for piece in regions(base, ours, ours) for line in piece.settled or []] == ours

    @given(
        *[st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)] * 2, st.sampled_from(["a.md", "a.py"])
    )
    def test_what_is_resolved_has_every_line_of_both(
        self, mine: list[str], other: list[str], path: str
    ) -> None:
        """No rule drops what somebody wrote."""
        line = "import {}\n" if path == "a.py" else "- {}\n"
        ours, theirs = (
            "top = 1\n" + "".join(map(line.format, names)) + "end = 1\n" for names in (mine, other)
        )
        found = resolve_file(Versions(path, "top = 1\nend = 1\n", ours, theirs))
        if found is not None:
            assert set(found.splitlines()) == set(ours.splitlines()) | set(theirs.splitlines())

    def test_a_file_made_to_take_long_is_left_alone(self) -> None:
        """Comparing lines that are all alike takes time that grows with their square."""
        base = "same\n" * 9_000
        assert resolved("a.txt", f"a\n{base}z\n", f"b\n{base * 2}y\n", f"c\n{base}x\n") is None

    def test_where_we_see_no_conflict_git_is_believed(self) -> None:
        """Who is right takes thought."""
        assert resolved("a.txt", "a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n") is None
