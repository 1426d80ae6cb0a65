"""Answers in the dialects of other systems; each gives the same kind of reading."""
