"""Machines, rules, readings, providers, recorder and effects: the meaning of the record and the actions that follow."""
