"""The one fold of a record in a process, and its subscribers."""
