"""Kernels on machines kept warm for them: runs of a listener, which is itself a task of another provider."""
