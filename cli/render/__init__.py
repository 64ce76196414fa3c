"""Pictures and tables as text: pure functions from values to lines."""
