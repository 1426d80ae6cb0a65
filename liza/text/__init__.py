"""YAML as Liza writes and reads it: the only package that knows it."""
