"""The read models: a file of rows computed from the world, who writes it, and who reads it."""
