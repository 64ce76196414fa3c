"""What an operator's tools ask: metrics, whether the process lives, whether it can be relied on."""
