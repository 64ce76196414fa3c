"""A recorded demand under another policy: (demand, policy, seed) → outcome, without I/O."""
