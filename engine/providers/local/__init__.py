"""Runs tasks as supervised processes of this machine. It imports nothing: the supervisor must start quickly."""
