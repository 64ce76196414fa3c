"""Polls a provider, appends every answer, and keeps the fold of the record up to date."""
