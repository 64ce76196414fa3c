"""The first site's front end, unchanged: kernels submitted, their statuses as a stream, its metrics object."""
