"""Kernels: the request, its task, what the task reports and how that is read."""
