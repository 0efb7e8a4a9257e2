"""Ops: what a forward pass is made of, and the backends that compute them (reference, native)."""
