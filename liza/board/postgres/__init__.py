"""The board on a PostgreSQL server, for workers on more than one machine."""

from importlib.util import find_spec

from liza.errors import UsageError

if find_spec("psycopg") is None:
    raise UsageError(
        "a board on PostgreSQL needs psycopg; install Liza with it (`pip install 'liza[postgres]'`)"
    )
