"""dstack, by its REST API: servers 0.19.37 to 0.22.5, raw JSON, no version header."""
