"""Runs tasks as supervised processes of this machine, without account or network.

Nothing is imported here: the supervisor starts from this package and must be quick to start.
"""
