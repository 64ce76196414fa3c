"""Access control of the HTTP service: authentication, roles, sessions, limits, and the middleware that applies them."""
