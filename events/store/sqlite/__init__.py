"""The SQLite store: one file, and files beside it."""
