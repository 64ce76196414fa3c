"""Shared by tests: recordings by hand, worlds given as rows, providers in memory, records in a folder."""
