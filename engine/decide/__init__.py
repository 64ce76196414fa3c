"""What to do about runs, machines and money: pure functions (state, policy, now) → decisions."""
