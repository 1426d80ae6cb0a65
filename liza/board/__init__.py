"""The board: the only way in which processes talk to each other."""
