"""The listener: strangers' kernels on a GPU machine, each program in a container of its own."""
