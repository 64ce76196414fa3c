"""The answers to people and programs, computed from the read models and the record."""
