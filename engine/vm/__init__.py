"""The VM machine: its states, the table between them, and why a machine is where it is."""
