"""`dibs bench`: how fast is this queue on this database, and what is the limit? Works on tables of its own alone."""
