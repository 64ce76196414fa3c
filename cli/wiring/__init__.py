"""What commands stand on: the call, its options and output, exit codes, signals, the record, the processes."""
