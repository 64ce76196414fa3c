"""Kernels: what is asked of one, how its task is made, what it reports and how that is read."""
