"""The outside systems that run things; the only code of Steno that talks to them."""
