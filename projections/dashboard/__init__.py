"""The dashboard: static files that read the API like anybody else."""
