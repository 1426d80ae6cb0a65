"""Where issues come from and pull requests go: one module a forge."""
