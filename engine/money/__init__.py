"""What machines and runs cost: pure functions of the world. Integer micro-dollars, microseconds."""
