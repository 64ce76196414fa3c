"""What Steno is measured by: `steno bench` runs the scripts, `targets.py` says what they must reach."""
