"""Steno's HTTP API: reads from the projections, commands handed to the engine, streams from the record."""
