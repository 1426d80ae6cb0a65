"""The sandbox around an agent: what it sees, what it may write, whom it reaches."""
