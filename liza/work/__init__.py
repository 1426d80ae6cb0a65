"""The processes that do the work: a worker, its turns, and what it has at hand."""
