"""What planner, coder and reviewer decide: pure functions over the board and the facts of a turn."""
