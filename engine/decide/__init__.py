"""Decisions about runs, machines and money: pure functions of world, policy and time."""
