"""`dibs doctor`: what is wrong with a queue, its tables and its server. It only looks."""
