"""Costs of machines and runs: pure functions of the world. Integer micro-dollars, microseconds."""
