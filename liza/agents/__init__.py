"""Agents: one protocol, one module a backend, and the recordings of their runs."""
