"""Who may ask for what over HTTP: tokens, sessions, roles, limits, and the gate every request passes."""
