"""The scripts of benchmarks/, as far as they can be tested without other engines."""
