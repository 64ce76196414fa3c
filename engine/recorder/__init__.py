"""Polls a provider for as long as it is wanted, appends every answer, and keeps the fold of the record up to date."""
