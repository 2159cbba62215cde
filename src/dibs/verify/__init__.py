"""`dibs verify`: a queue's promises, tried on the database that is to keep them."""
