"""Every op on every backend, timed and set against what the machine can do."""
