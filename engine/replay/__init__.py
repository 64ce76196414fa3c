"""Replay: any history folded under any rules, without effects."""
