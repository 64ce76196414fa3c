"""Incident bundles: the part of a record that concerns some runs, in one file that proves itself."""
