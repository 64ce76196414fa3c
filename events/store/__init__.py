"""The store of a record: append, read, schema, hash chain, vault, verification."""
