"""The runner: turns a SchedulerOutput into columns, runs the Plan, and gives the sampled tokens back."""
