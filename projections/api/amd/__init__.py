"""The `/api/amd` endpoints of a kernel site's front end: submission, statuses as a stream, metrics."""
