"""Machines, rules, readings, providers, recorder and effects: the meaning of the record and the actions that follow."""

if __name__ != "steno.engine":
    raise ImportError("Steno's packages are inside `steno`: import steno.engine, not engine")
