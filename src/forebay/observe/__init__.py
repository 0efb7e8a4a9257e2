"""What is recorded (events, step records) and what is derived from it (metrics). See docs/observe.md."""
