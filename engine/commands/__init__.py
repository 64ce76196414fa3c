"""What CLI and API share of each command: accept a request, record it, wait for its outcome."""
