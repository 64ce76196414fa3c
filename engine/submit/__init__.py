"""The one way in for a run, from CLI, HTTP and kernels: complete, admit, request, outcome."""
