"""Runs written down for the demo, played back by the replay backend."""
