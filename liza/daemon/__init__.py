"""The processes that stay: the supervisor, its workers, and what a turn of a worker does."""
