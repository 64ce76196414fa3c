"""Machines, rules, readings, providers, recorder and effects: what the record means and what is done about it."""
