"""Sealed ranges: rows of `events` in Parquet files, in a folder or a bucket."""
