"""Actions under the lease: rounds of polls, decisions, and their effects; each effect is intent, call, outcome."""
