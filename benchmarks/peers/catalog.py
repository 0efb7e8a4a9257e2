"""All engines, Forebay first."""

from __future__ import annotations

from forebay_engine import Forebay
from llama_cpp import LlamaCpp
from openvino_genai import OpenVinoGenAI
from peer import Peer
from processes import PeerError
from transformers_cpu import Transformers
from vllm_cpu import Vllm

PEERS: tuple[Peer, ...] = (Forebay(), LlamaCpp(), Vllm(), OpenVinoGenAI(), Transformers())


def peer_named(name: str | None) -> Peer:
    """Raises PeerError if there is none."""
    for peer in PEERS:
        if peer.name == name:
            return peer
    raise PeerError(f"name an engine: {', '.join(peer.name for peer in PEERS)}")
