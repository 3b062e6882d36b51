"""The head: the pure state machine of a queue, its codec and its rules. An afternoon's read."""
