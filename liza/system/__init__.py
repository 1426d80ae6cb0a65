"""The operating system: locks, files, processes, the sandbox."""
