"""A simulated GPU cloud on one port: DigitalOcean's API and, on each machine, dstack's shim and runner."""
