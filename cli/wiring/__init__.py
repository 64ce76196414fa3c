"""Shared by all commands: the invocation, options, output, exit codes, signals, the record, the processes."""
