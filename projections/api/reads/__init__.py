"""What can be read over HTTP: one table of reads, each a function of a look at the record."""
