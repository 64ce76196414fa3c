"""The dashboard: static files that use the public API."""
