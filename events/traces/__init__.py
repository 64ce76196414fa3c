"""Traces: recordings of polls, one a line, read, written and imported."""
