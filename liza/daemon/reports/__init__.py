"""What the daemon writes for people, as Markdown: trips of the breaker, checkpoints, retrospectives."""
