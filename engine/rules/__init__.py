"""Rules: named decisions from facts to a verdict, pure, and gathered into rule sets by name."""
