"""Names for the content of full blocks: a chain of sha256 over (parent hash, tokens), rooted in the namespace.

A block's KV depends on all tokens before it and on everything in the namespace (tenant, model and tokenizer revision,
adapter, answer class), so equal hashes mean equal bits. sha256, because a collision would show one tenant the answer of
another.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256


def root_hash(namespace: str) -> bytes:
    """Parent of the first block. The leading byte keeps a crafted namespace from posing as a block."""
    return sha256(b"r" + namespace.encode()).digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """Name of a full block after the block named `parent`: 32 bytes, the same on every machine."""
    return sha256(b"b" + parent + struct.pack(f"<{len(token_ids)}i", *token_ids)).digest()
