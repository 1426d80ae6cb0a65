"""The board reads back as written, bad text is refused with its line, and blocks mean the same alone."""

import pickle
import re
from textwrap import dedent
from typing import Any, Final, TypeAlias

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from liza.board.edits import YamlBlock, split_blocks
from liza.domain import yaml_parse as module
from liza.domain.record import DEEPEST, LONGEST_KEY, Json, item_text, section_text
from liza.domain.yaml_parse import BadYaml, parse_yaml

Loader: TypeAlias = type[yaml.SafeLoader] | type[yaml.CSafeLoader]
Edit: TypeAlias = tuple[float, int, str]

LOADERS: Final[list[Loader]] = [yaml.SafeLoader, yaml.CSafeLoader]
COMMIT: Final = "3f786850e387550fdab836ed7e6dc881de23001b"
MOMENT: Final = "2026-11-16T04:19:29.123456Z"
TASK: Final[dict[str, Json]] = {
    "id": "t1",
    "status": "IDLE",
    "done_when": ["greets", "exits 0: always"],
    "lease": {"holder": "coder-1", "expires": MOMENT},
    "base_commit": COMMIT,
    "merge_commit": None,
    "feedback": 'Say "hi".\n\n- tasks:\n',
    "depends_on": [],
}

# Words, marks and shapes that mean something to YAML, alone or in company.
PIECES: Final = [
    *("yes", "No", "on", "OFF", "y", "N", "~", "null", "true", "12", "-5", "1_000", "0x1f", "0b1", "017"),
    *("0x_", "1e3", "1.5", "12:30:45", "2026-11-16", MOMENT, "2026-02-30T00:00:00Z", COMMIT, "1" * 40),
    *(
        ".",
        "=",
        "<<",
        ".inf",
        ".nan",
        "---",
        "...",
        "- ",
        "? ",
        ": ",
        " #",
        "#",
        ":",
        "-",
        "*a",
        "&a",
        "!!str",
    ),
    *("|", ">", "%", "@", "`", "'", '"', "[", "]", "{", "}", ",", "\\", "\n", "\n\n", " ", "  ", "\t", "\r"),
    *("\0", "\x7f", "\x85", "\xa0", "\u2028", "\u2029", "\ufeff", "\ufffe", "\U0001f600", "é", "a", "a: b"),
]
# What a slip of the hand leaves in a board.
SCRAPS: Final = [
    *(
        '"',
        "'",
        "[",
        "]",
        "{",
        "}",
        "|",
        ">",
        "|2-",
        "\n",
        "\n\n",
        " ",
        "  ",
        ": ",
        ":",
        "- ",
        "-",
        ", ",
        "#",
    ),
    *(" # ", "a", "a: ", "a: b\n", "- a\n", "\na: '", '\n"a": ', "\n  - |\n", "? ", "!!str ", "!!seq", "&a "),
    *("*a", "\\", "''", "---\n", "...\n", "%", "\t", "\r", "\u2028", "\nb: |\n  ", "  - - >\n", "- c: |\n"),
    *('- "d": |+\n', "[a, 'b']", "~", "\na: ", "\nb: ", "\n- ", "\n  "),
]

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.lists(st.sampled_from(["", "a", "  b", "c  ", " ", "# d", "- e", "f: 'g", '"']), max_size=6).map(
        "\n".join
    ),
)
keys = st.one_of(st.sampled_from(["id", "status", "a.b-c", "yes", "12", ""]), texts)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
)
values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
records = st.dictionaries(keys, values, max_size=5)
# As on a board: no list stands directly in a list.
board_values: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: (
        st.dictionaries(keys, inner, max_size=4)
        | st.lists(scalars | st.dictionaries(keys, inner, max_size=3), max_size=4)
    ),
    max_leaves=12,
)
names = st.sampled_from(["goal", "tasks", "human_notes", "config"])
comments = st.sampled_from(["", "\n", "# note\n", "# a: 'b\n\n", "   \n", "  # deep\n"])
sections = st.builds(section_text, names, values | st.lists(records, max_size=3))
boards = st.lists(st.tuples(sections, comments).map("".join), max_size=4).map("".join)
edits = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from([0, 0, 0, 1, 2, 9]), st.sampled_from(SCRAPS)), max_size=4
)

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(params=LOADERS)
def _each_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOADER", request.param)


# A machine without the loader in C falls back on the pure one, and both must say the same.
each_loader = pytest.mark.usefixtures("_each_loader")


def loaded(text: str, loader: Loader) -> Any:  # noqa: ANN401
    return yaml.load(text, Loader=loader)  # noqa: S506


def refusal(text: str) -> BadYaml | None:
    try:
        parse_yaml(text)
    except BadYaml as bad:
        return bad
    return None


class TestLayout:
    """What people see when they open the board."""

    def test_of_a_section(self) -> None:
        assert section_text("goal", {"description": "Build it"}) == "goal:\n  description: Build it\n"

    def test_of_a_section_that_is_a_scalar(self) -> None:
        assert section_text("version", 1) == "version: 1\n"

    @pytest.mark.parametrize(("value", "shown"), [([], "[]"), ({}, "{}"), (None, "null"), ("", '""')])
    def test_of_nothing(self, value: Json, shown: str) -> None:
        assert section_text("tasks", value) == f"tasks: {shown}\n"
        assert item_text({"tasks": [value]}) == f"- tasks:\n  - {shown}\n"

    def test_of_an_empty_record(self) -> None:
        assert item_text({}) == "- {}\n"

    def test_of_a_task(self) -> None:
        assert item_text(TASK) == dedent(f"""\
            - id: t1
              status: IDLE
              done_when:
              - greets
              - "exits 0: always"
              lease:
                holder: coder-1
                expires: {MOMENT}
              base_commit: {COMMIT}
              merge_commit: null
              feedback: |
                Say "hi".

                - tasks:
              depends_on: []
            """)

    def test_a_list_section_is_its_name_and_its_items(self) -> None:
        assert section_text("tasks", [TASK, {"id": "t2"}]) == "tasks:\n" + item_text(TASK) + item_text(
            {"id": "t2"}
        )

    def test_of_lists_in_lists(self) -> None:
        assert section_text("x", [[1, [2, 3]], [{"a": 1, "b": [4]}], []]) == dedent("""\
            x:
            - - 1
              - - 2
                - 3
            - - a: 1
                b:
                - 4
            - []
            """)

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("a\nb", "|-\n  a\n  b"),
            ("a\nb\n", "|\n  a\n  b"),
            ("a\n\n", "|+\n  a\n"),
            ("  a\nb\n", "|2\n    a\n  b"),
            (" a\n\n b", "|2-\n   a\n\n   b"),
            ("a\n  ", "|-\n  a\n    "),
            ("\na", '"\\na"'),
            ("a\n\tb", '"a\\n\\tb"'),
        ],
    )
    def test_of_several_lines(self, text: str, shown: str) -> None:
        assert section_text("x", text) == f"x: {shown}\n"

    @pytest.mark.parametrize(
        "text",
        [
            *("coder-1", "goal.2", "src/greet.py", "Build it, then rest (a while)", "a:b", "c#", "it's", "é"),
            *(MOMENT, "2026-11-16T04:19:29Z", COMMIT, "0b" + "1" * 37 + "a", "f" * 64, "node", "yesterday"),
        ],
    )
    def test_without_quotes(self, text: str) -> None:
        assert section_text("x", text) == f"x: {text}\n"

    @pytest.mark.parametrize(
        "text",
        [
            *("yes", "No", "ON", "off", "y", "N", "True", "false", "NULL", "~", "12", "-5", "1_000", "0x1f"),
            *("017", "1e3", "1.5", "12:30:45", "2026-11-16", "2026-02-30T00:00:00Z", "0000-01-01T00:00:00Z"),
            *("2026-01-01T24:00:00Z", "1" * 40, "1234e5678" + "0" * 31, "0b" + "01" * 19, "a: b", "a:"),
            *(".", "=", "<<", ".inf", ".NaN", "a #b", "a ", " a", "- a", "? a", "*a", "&a", "!a", "%a", "@a"),
            *("`a`", "|", ">", "[a]", "{a}", "---", "...", "", "a\xa0b"),
        ],
    )
    def test_in_quotes(self, text: str) -> None:
        assert section_text("x", text) == f'x: "{text}"\n'

    @pytest.mark.parametrize(
        ("number", "shown"),
        [
            *((1, "1"), (-7, "-7"), (1.5, "1.5"), (True, "true"), (False, "false")),
            *((1e16, "1.0e+16"), (1e-7, "1.0e-07"), (-1.5e300, "-1.5e+300")),
        ],
    )
    def test_of_numbers(self, number: Json, shown: str) -> None:
        assert section_text("x", number) == f"x: {shown}\n"

    @pytest.mark.parametrize(
        ("key", "shown"), [("a.b-c_1", "a.b-c_1"), ("on", '"on"'), ("a b", '"a b"'), ("1", '"1"'), ("", '""')]
    )
    def test_of_keys(self, key: str, shown: str) -> None:
        assert section_text(key, 1) == f"{shown}: 1\n"


class TestWhatHasNoForm:
    """What could not be read back is never written."""

    @pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
    def test_infinity_and_nan(self, number: float) -> None:
        with pytest.raises(ValueError, match="no form on the board"):
            section_text("x", number)

    @pytest.mark.parametrize("text", ["\ud800", "a\n\udfff", "word \ud83d\ude00"])
    def test_lone_surrogates(self, text: str) -> None:
        with pytest.raises(ValueError, match="lone surrogate"):
            section_text("x", text)
        with pytest.raises(ValueError, match="lone surrogate"):
            section_text(text, 1)

    def test_other_types(self) -> None:
        foreign: Any = b"bytes"
        with pytest.raises(TypeError, match="no form on the board"):
            item_text({"x": foreign})

    def test_a_section_nested_too_deep(self) -> None:
        deep: Json = 1
        for _ in range(DEEPEST - 1):
            deep = [deep]
        assert parse_yaml(section_text("x", deep)).data == {"x": deep}
        with pytest.raises(ValueError, match="deeper than 50"):
            section_text("x", [deep])

    def test_an_item_nested_too_deep_counting_its_section(self) -> None:
        deep: dict[str, Json] = {"x": 1}
        for _ in range(DEEPEST - 3):
            deep = {"x": deep}
        assert parse_yaml("tasks:\n" + item_text(deep)).data == {"tasks": [deep]}
        with pytest.raises(ValueError, match="deeper than 50"):
            item_text({"x": deep})


def without_moments(value: Json) -> Json:
    if isinstance(value, str):
        return re.sub(r"\A\d{4}-", "x", value)
    if isinstance(value, list):
        return [without_moments(part) for part in value]
    if isinstance(value, dict):
        return {key: without_moments(part) for key, part in value.items()}
    return value


class TestRoundTrip:
    """What was written is what is read, by us and by any other loader of YAML 1.1."""

    @each_loader
    @quick
    @given(names, values)
    @example(
        "x", {"a" * 2000: [{"\n" * 2000: {"b": 1}}], "a" * LONGEST_KEY: 1, "a" * (LONGEST_KEY + 1): ["c\nd"]}
    )
    @example("x", {"": "", "on": [{"<<": "="}, [["a\nb"], {"c\nd": "e\n\n"}]]})
    def test_of_a_section(self, name: str, value: Json) -> None:
        assert parse_yaml(section_text(name, value)).data == {name: value}

    @each_loader
    @quick
    @given(st.lists(records, min_size=1, max_size=3))
    def test_of_items(self, tasks: list[dict[str, Json]]) -> None:
        assert parse_yaml("tasks:\n" + "".join(map(item_text, tasks))).data == {"tasks": tasks}

    @pytest.mark.parametrize("loader", LOADERS)
    @quick
    @given(names, values.map(without_moments))
    def test_through_other_loaders(self, loader: Loader, name: str, value: Json) -> None:
        assert loaded(section_text(name, value), loader) == {name: value}
        assert loaded(item_text({name: value}), loader) == [{name: value}]

    @each_loader
    @pytest.mark.parametrize("loader", LOADERS)
    def test_of_every_character(self, loader: Loader) -> None:
        """Plain, quoted or in a block, first or last or between, no character is lost or changed."""
        codes = [*range(0xD800), *range(0xE000, 0x10400), 0x1FFFE, 0x1FFFF, 0x10FFFF]
        special = [*range(0x180), *range(0x2000, 0x2070), 0x3000, 0xD7FF, *range(0xFEF0, 0x10000)]
        whole: dict[str, Json] = {
            f"u{code:x}": [chr(code), f"a{chr(code)}b", f"a\n{chr(code)}\n{chr(code)}"] for code in special
        }
        whole |= {"all": "".join(map(chr, codes)), "block": "a\n" + "".join(map(chr, range(0x20, 0x7F)))}
        text = section_text("x", whole)
        assert parse_yaml(text).data == {"x": whole}
        assert loaded(text, loader) == {"x": whole}

    @pytest.mark.parametrize("loader", LOADERS)
    def test_a_moment_is_a_string_to_us_and_a_moment_to_others(self, loader: Loader) -> None:
        text = section_text("at", MOMENT)
        assert parse_yaml(text).data == {"at": MOMENT}
        assert loaded(text, loader)["at"].isoformat() == "2026-11-16T04:19:29.123456+00:00"


@each_loader
class TestReading:
    """What people write by hand is understood as YAML 1.1, but for moments and words of yes and no."""

    @pytest.mark.parametrize(
        ("written", "value"),
        [
            *(("12", 12), ("-5", -5), ("1_000", 1000), ("0x1f", 31), ("017", 15), ("0o17", "0o17")),
            *(("12:30", 750), ("1.5", 1.5), ("1e3", "1e3"), ("true", True), ("FALSE", False)),
            # A mode is off, and a name may be no: the field says what is meant.
            *((word, word) for word in ("yes", "Off", "on", "NO", "y")),
            *(("~", None), ("", None), ("null", None), ("2026-11-16", "2026-11-16")),
            *(("2026-11-16 04:19:29 Z", "2026-11-16 04:19:29 Z"), ("'12'", "12"), ('"on"', "on")),
            *(("!!str 12", "12"), ("!!int '12'", 12), ("!!float 1", 1.0), ("!!map {}", {}), ("!!seq []", [])),
            *(("[a, 1]", ["a", 1]), ("{a: 1}", {"a": 1}), ("a # note", "a"), ('"\\x41\\u00e9"', "Aé")),
            *(("a\n  b", "a b"), ('"a\n  b"', "a b"), (">\n  a\n  b\n", "a b\n"), ("|+\n  a\n\n", "a\n\n")),
        ],
    )
    def test_of_values(self, written: str, value: Json) -> None:
        assert parse_yaml(f"x: {written}").data == {"x": value}

    def test_a_document_may_open_with_its_marker(self) -> None:
        assert parse_yaml("# Liza\n---\na: 1\n").data == {"a": 1}

    def test_of_lines(self) -> None:
        text = dedent("""\
            # header

            goal:
              description: |
                a
                b
            tasks:
            - id: t1
              done_when:
              - x

              - y
            - {id: t2, history: [
                a, b]}
            """)
        assert parse_yaml(text).lines == {
            (): 1,
            ("goal",): 3,
            ("goal", "description"): 4,
            ("tasks",): 7,
            ("tasks", 0): 8,
            ("tasks", 0, "id"): 8,
            ("tasks", 0, "done_when"): 9,
            ("tasks", 0, "done_when", 0): 10,
            ("tasks", 0, "done_when", 1): 12,
            ("tasks", 1): 13,
            ("tasks", 1, "id"): 13,
            ("tasks", 1, "history"): 13,
            ("tasks", 1, "history", 0): 14,
            ("tasks", 1, "history", 1): 14,
        }

    @quick
    @given(values)
    def test_each_key_stands_on_its_line(self, value: Json) -> None:
        text = section_text("goal", value)
        rows = text.split("\n")
        for path, line in parse_yaml(text).lines.items():
            if path and path[-1] in {"goal", "id", "status"}:
                assert re.match(rf"[ -]*{path[-1]}:", rows[line - 1])


# A text, the line that is wrong, and the start of the problem; none where the loaders word it differently.
REFUSALS: Final = [
    ("", 1, "the file is empty"),
    ("\n# only a comment\n", 1, "the file is empty"),
    ("- a\n", 1, "the top must be"),
    ("\nword\n", 2, "the top must be"),
    ("---\n", 2, "the top must be"),
    ("*a", 1, "the top must be"),
    ("a: 1\nb: 2\na: 3\n", 3, "the key a is already on line 1"),
    ("x:\n- a: 1\n  'a': 2\n", 3, "the key a is already on line 2"),
    ("&a {}", 1, "anchors (&a)"),
    ("a: &b 1\n", 1, "anchors (&b)"),
    ("a:\n  c: &b [1]\n", 2, "anchors (&b)"),
    ("&b a: 1\n", 1, "anchors (&b)"),
    ("a: 1\nb: *a\n", 2, "aliases (*)"),
    ("a:\n- *b\n", 2, "aliases (*)"),
    ("a:\n  <<: {b: 1}\n", 2, "merge keys (<<)"),
    ("a: <<\n", 1, "merge keys (<<)"),
    ("a: =\n", 1, "a lone ="),
    ("!!set {}", 1, "the tag tag:yaml.org,2002:set"),
    ("a: !!map []\n", 1, "the tag tag:yaml.org,2002:map"),
    ("a: !!str []\n", 1, "the tag tag:yaml.org,2002:str"),
    ("a: !!timestamp 2026-11-16\n", 1, "the tag tag:yaml.org,2002:timestamp"),
    ("a: !mine 1\n", 1, "the tag !mine"),
    ("a: ! 1\n", 1, "the tag !"),
    ("a: 1\n2: b\n", 2, "key must be a word"),
    ("true: 1\n", 1, "key must be a word"),
    ("null: 1\n", 1, "key must be a word"),
    ("1.5: 1\n", 1, "key must be a word"),
    ("? [a]\n: 1\n", 1, "key must be a word"),
    ("? {a: 1}\n: 1\n", 1, "key must be a word"),
    ("a: 1\n*b : 2\n", 2, "key must be a word"),
    ("a: 1\n---\nb: 2\n", 2, "a second document"),
    ("a: 1\n...\n---\n", 3, "a second document"),
    ("a:\n\tb: 1\n", 2, "a tab"),
    ("a: |\n  b\tc\n", 2, "a tab"),
    ("a: 1\rb: 2\n", 1, "a carriage return"),
    ("a: 1\n\ufeffb: 1", 2, "a byte order mark"),
    ("a: 1\nb: \x00", 2, "the character U+0000"),
    ("a: \x7f", 1, "the character U+007F"),
    ("a: \x85", 1, "the character U+0085"),
    ("a\u2028b: 1", 1, "the character U+2028"),
    ("a: \ud800", 1, "the character U+D800"),
    ("a: \uffff", 1, "the character U+FFFF"),
    ("a: 0x_\n", 1, "0x_ is no int"),
    ("a: !!int ''\n", 1, " is no int"),
    ("a: !!bool maybe\n", 1, "maybe is no bool"),
    ("a: " + "9" * 5000, 1, "9" * 40 + " is no int"),
    ("a: 1" + ":1" * 500 + ".5", 1, "1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1:1: is no float"),
    ("a: .inf\n", 1, ".inf is not a finite number"),
    ("a: .nan\n", 1, ".nan is not a finite number"),
    ("a: 1.0e+999\n", 1, "1.0e+999 is not a finite number"),
    ('a: 1\nb: "\\ud800"', 2, ""),
    ('a: 1\nb: "\\uD83D\\uDE00"', 2, ""),
    ('a: 1\nb: !!str "\\ud800"', 2, ""),
    ('a: 1\n"\\ud800": 1', 2, ""),
    ('a: 1\nb: "\\U00110000"', 2, ""),
    ('a: 1\nb: "\\UFFFFFFFF"', 2, ""),
    ('a: "\\q"', 1, "found unknown escape character"),
    ("a: b: c\n", 1, "mapping values are not allowed"),
    ("a: 1\n  b: 2\n", 2, "mapping values are not allowed"),
    ("a: @b\n", 1, "found character"),
    ("a: [1\nb: 2\n", 2, ""),
    ("a:\n  - 1\n b: 2\n", 3, ""),
    ("%YAML 9.0\n---\na: 1\n", 1, "found incompatible YAML document"),
    ("a: 1\nb: [1\n\n", 2, "while parsing a flow sequence"),
    ('a: 1\nb: "c\nd: 1\n', 2, "while scanning a quoted scalar, found unexpected end of stream"),
]


@each_loader
class TestRefusing:
    """A refusal names the line and what is wrong with it."""

    @pytest.mark.parametrize(("text", "line", "problem"), REFUSALS)
    def test_of_each_kind(self, text: str, line: int, problem: str) -> None:
        bad = refusal(text)
        assert bad
        assert bad.line == line
        assert bad.problem.startswith(problem)

    @pytest.mark.parametrize("opener", ["[", "{", "- ", "? ", "[\n", "{a: ", "[{a: ", "&a [", "!!seq ["])
    def test_of_ten_thousand_levels(self, opener: str) -> None:
        assert refusal("a:\n " + opener * 10_000)

    @pytest.mark.parametrize(("opener", "closer"), [("[", "]"), ("{a: ", "}"), ("[\n", "]")])
    def test_of_the_first_level_too_many(self, opener: str, closer: str) -> None:
        assert not refusal("a:\n " + opener * (DEEPEST - 1) + closer * (DEEPEST - 1))
        bad = refusal("a:\n " + opener * DEEPEST + closer * DEEPEST)
        assert bad
        assert bad.problem == "nested deeper than 50 levels"

    @quick
    @given(st.lists(st.sampled_from(PIECES) | texts, max_size=8).map("".join))
    @example("a: '")
    @example("!<")
    @example("%TAG ! a\n---\n!b {}")
    def test_nothing_else_is_raised(self, text: str) -> None:
        bad = refusal(text)
        assert not bad or 1 <= bad.line <= text.count("\n") + 2

    def test_is_one_sentence(self) -> None:
        assert str(refusal("a: 1\nb: *a\n")) == "line 2: aliases (*) are not allowed: write the value out"

    def test_survives_pickling(self) -> None:
        assert str(pickle.loads(pickle.dumps(BadYaml(3, "a tab")))) == "line 3: a tab"  # noqa: S301


def parsed(text: str) -> dict[str, Json] | None:
    try:
        return parse_yaml(text).data
    except BadYaml:
        return None


def assembled(blocks: list[YamlBlock]) -> dict[str, Json] | None:
    """Return the data of *blocks*, each parsed alone, or None if there is none or one of them is bad."""
    data: dict[str, Json] = {}
    for block in blocks:
        part = parsed(f"{block.section}:\n{block.text}" if block.item else block.text)
        if part is None and block.section:
            return None
        for name, value in (part or {}).items():
            before = data.get(name)
            data[name] = before + value if isinstance(before, list) and isinstance(value, list) else value
    return data or None


def edited(text: str, changes: list[Edit]) -> str:
    for where, cut, scrap in changes:
        at = int(where * len(text))
        text = text[:at] + scrap + text[at + cut :]
    return text


class TestSplit:
    """Blocks are cut without parsing, and only where each means alone what it means in the whole."""

    def test_of_a_board(self) -> None:
        blocks = [
            YamlBlock("", item=False, line=1, text="# Liza\n\n"),
            YamlBlock("version", item=False, line=3, text="version: 1\n"),
            YamlBlock("goal", item=False, line=4, text="goal:\n  why: |\n    tasks:\n\n    - x\n# kept\n\n"),
            YamlBlock("tasks", item=False, line=11, text="tasks: # all\n"),
            YamlBlock("tasks", item=True, line=12, text=item_text(TASK) + "# after t1\n"),
            YamlBlock("tasks", item=True, line=28, text="- id: t2\n"),
            YamlBlock("agents", item=False, line=29, text="agents: {id: a}\n"),
            YamlBlock("notes", item=False, line=30, text="notes: [a, \"b'\", 'c']"),
        ]
        assert split_blocks("".join(block.text for block in blocks)) == blocks

    def test_of_no_section(self) -> None:
        assert split_blocks("") == []
        assert split_blocks("# a\n") == [YamlBlock("", item=False, line=1, text="# a\n")]

    @pytest.mark.parametrize(
        "text",
        [
            *(
                "---\na: 1\n",
                "a: 1\n...\n",
                "%YAML 1.1\n",
                "a:\tb\n",
                "a: 1\r\n",
                "a: b\u2028c\n",
                "\ufeffa: 1\n",
            ),
            *(
                "word\n",
                "a : 1\n",
                "a b: 1\n",
                '"a": 1\n',
                "? a\n: 1\n",
                "-\n  a: 1\n",
                "[a]\n",
                "}\n",
                "a:b\n",
            ),
            *("- a\n", "# a\n- b\n", "  a: 1\n", " # a\n  b\nc: 1\n", "a: 1\na: 2\n", "a: 1\n- b\n"),
            *("a: |\n- b\n", "a: !!seq\n- b\n", "a:\n  - b\n- c\n", "a: &b\n- c\n", "a: # b\n  c\n- d\n"),
            *('a: "b\nc: d"\n', "a: 'b\nc: d'\n", "a: [b\n]\n", "a: {b: c,\nd: e}\n", 'a: "\\\nb: c"\n'),
            *('a:\n  "b\nc: d"\n', "a:\n- 'b\n- c'\n", "a:\n- [b,\n- c]\n", 'a: !!str "b\nc: d"\n'),
            *('a b: "c\nd: e"\n', "a:\n  b c: 'd\ne: f'\n", "a:\n  b:c: 'd\ne: f'\n", "a: 'b''\nc: d'\n"),
            *(
                'a:\n- b: |\n    c\n  d: "e\nf: g"\n',
                "a:\n  # b: |\n    c: 'd\ne: f'\n",
                "a: [\"b]\", 'c\nd: e']\n",
            ),
            *(
                "a:\n- - b: |\n      c\n    d: 'e\nf: g'\n",
                "a:\n- b: |\n  c: 'd\ne: f'\n",
                'a: "b" # "\nc: "d\n',
            ),
        ],
    )
    def test_leaves_to_the_parser_what_is_not_sure(self, text: str) -> None:
        assert split_blocks(text) is None

    @pytest.mark.parametrize(
        "text",
        [
            *("a: |\n  'b\n  [\nc: d\n", "a:\n- |\n  'b\n- c\n", "a:\n- b: >-\n    'c\n  d: e\n"),
            *(
                'a:\n- "b": |2-\n      "c\n\n    {d\n',
                "a: # 'b\nc: d\n",
                "a:\n- b # 'c\n- d\n",
                "a: -5\nb: '-'\n",
            ),
            *(
                "a:\n- b\n  'c'\n- d\n",
                "a: 'b''c'\nd: \"\\\"\"\n",
                "a: foo\n  bar\nb: 1\n",
                "a:\n  - b\n  - c\nd: 1",
            ),
            *(
                "on: 1\nb: 2\n",
                "a: &x 1\nb: *x\n",
                "a: b: c\nd: e\n",
                "a: b: 'c\nd: e'\n",
                "a:\n# b\n- c\n\n- d",
            ),
            *('a:\n  "on":\n    b: 1\n  "x": -2\nc: 1\n', "a:\n- b\n# 'c\n- d\n", "a: it's [so\nb: 1\n"),
        ],
    )
    def test_cuts_what_means_the_same_alone(self, text: str) -> None:
        blocks = split_blocks(text)
        assert blocks
        assert assembled(blocks) == parsed(text)

    @quick
    @given(st.builds(edited, boards, edits) | st.lists(st.sampled_from(SCRAPS)).map("".join))
    def test_blocks_mean_what_the_whole_means(self, text: str) -> None:
        """Also where that is a refusal: bad text is not made good by cutting it."""
        blocks = split_blocks(text)
        if blocks is not None:
            assert "".join(block.text for block in blocks) == text
            assert assembled(blocks) == parsed(text)

    @quick
    @given(st.dictionaries(names, board_values, min_size=1), comments)
    def test_our_own_layout_is_always_cut(self, data: dict[str, Json], note: str) -> None:
        text = note + "".join(section_text(name, value) + note for name, value in data.items())
        blocks = split_blocks(text) or []
        assert assembled(blocks) == parsed(text)
        assert [block.section for block in blocks if block.section and not block.item] == list(data)
        items = {name: [block.item for block in blocks if block.section == name].count(True) for name in data}
        assert items == {name: len(value) if isinstance(value, list) else 0 for name, value in data.items()}

    @quick
    @given(boards)
    def test_each_block_knows_its_line(self, text: str) -> None:
        for block in split_blocks(text) or []:
            assert "\n".join(text.split("\n")[block.line - 1 :]).startswith(block.text)
