"""The measures of Steno: `steno bench` runs the scripts, `targets.py` says what they must reach."""
