"""The reference backend: numpy, float32, plain. It is the specification every kernel is tested against."""

from forebay.ops.reference.backend import ReferenceBackend

__all__ = ["ReferenceBackend"]
