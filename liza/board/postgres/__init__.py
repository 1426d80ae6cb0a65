"""The board on a PostgreSQL server, for workers on more than one machine."""
