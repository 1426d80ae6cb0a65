"""Python's parser, asked by several threads at once."""

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from liza.system import files

LIZA = Path(files.__file__).parents[1]


def test_threads_that_parse_at_once_do_not_end_each_other() -> None:
    """A collection in the middle of a tree lets another thread in, where CPython's own parser would fail."""
    text = "\n".join(f"a{number} = [(1, (2, (3, {{4: 5}}))) for _ in range(9)]" for number in range(200))
    thresholds = gc.get_threshold()
    gc.set_threshold(20)
    gc.callbacks.append(let_others_in)
    try:
        with ThreadPoolExecutor(8) as threads:
            trees = list(threads.map(files.parse_python, [text] * 40))
    finally:
        gc.callbacks.remove(let_others_in)
        gc.set_threshold(*thresholds)
    assert {len(tree.body) for tree in trees} == {200}


def let_others_in(*_: object) -> None:
    for _number in range(50):
        pass


def test_nobody_goes_around_it() -> None:
    users = {
        path.relative_to(LIZA).as_posix()
        for path in LIZA.rglob("*.py")
        if re.search(r"\bast\.parse\(|=ast\.parse\b", path.read_text(encoding="utf-8"))
    }
    assert users == {"system/files.py"}
