"""Where model runners live: inline today; others (processes, Ray) implement the same protocol."""
