from __future__ import annotations

from hashlib import sha256

from forebay.kvcache.block_hash import block_hash, root_hash


def test_every_part_of_the_past_counts() -> None:
    first = block_hash(root_hash("tenant a"), [1, 2, 3, 4])
    assert first == block_hash(root_hash("tenant a"), [1, 2, 3, 4])
    assert len(first) == 32
    different = {
        first,
        block_hash(root_hash("tenant b"), [1, 2, 3, 4]),
        block_hash(root_hash("tenant a"), [1, 2, 3, 5]),
        block_hash(first, [1, 2, 3, 4]),
        block_hash(root_hash("tenant a"), [1, 2, 3]),
    }
    assert len(different) == 5


def test_the_bytes_are_fixed() -> None:
    """The chain is a wire format: other processes and a later version must find the same names."""
    root = sha256(b"r" + b"ns").digest()
    assert root_hash("ns") == root
    assert block_hash(root, [1, 258]) == sha256(b"b" + root + b"\x01\x00\x00\x00\x02\x01\x00\x00").digest()


def test_a_namespace_cannot_pose_as_a_block() -> None:
    parent = bytes(32)
    crafted = (parent + bytes(4)).decode()
    assert root_hash(crafted) != block_hash(parent, [0])
