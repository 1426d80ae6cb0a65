"""Coding programs as agents: one row of a table each, and one parser for each dialect that they print."""
