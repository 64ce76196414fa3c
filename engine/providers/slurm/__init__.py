"""Slurm: jobs of a cluster, by its own commands, here or over ssh."""
