"""For tests: histories by hand (`story`) and by Hypothesis (`histories`, which needs the development tools)."""
