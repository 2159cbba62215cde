"""`dibs demo`: real work on real files while a worker is killed, and a proof at the end that nothing was lost."""
