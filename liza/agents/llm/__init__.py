"""Our own small agent on any model: a loop with a shell and an edit tool, in a process of its own."""
