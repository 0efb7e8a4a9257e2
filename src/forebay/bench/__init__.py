"""Measuring: workloads, load, metrics by definition, and documents of what was found."""
