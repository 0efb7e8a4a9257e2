"""From a specification to a Workload: text, lengths, arrivals, traces, buckets, sessions. `build.py` is the door."""
