"""The engine: the loop, its process, and the front ends that talk to it. See docs/engine.md."""
