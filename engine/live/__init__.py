"""The one fold of a record in a process, and who is told what it changes."""
