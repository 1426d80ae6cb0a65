"""The live terminal of `liza watch`: the board, workers, questions and diffs, with keys to act."""
