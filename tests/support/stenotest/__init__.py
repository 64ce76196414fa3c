"""What tests share: recordings by hand, worlds told in rows, providers in memory, records in a folder."""
