"""The PostgreSQL store: a record in the schema `steno` of a database, its company in tables beside it."""
