"""The runtime of `steno up`: the loop of rounds, several sources in one process, the kernels' warm machines."""
