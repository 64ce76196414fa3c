"""State machines as data: one table, two ways to step through it, one picture of it."""
