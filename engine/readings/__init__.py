"""Readings: pure functions from what a provider said to facts. They tolerate what they do not know."""
