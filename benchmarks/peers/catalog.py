"""All engines, Forebay first."""

from __future__ import annotations

from functools import partial

import model_files
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


def peers_for(model: str) -> tuple[Peer, ...]:
    """The engines that are measured with a model of model_files; with a larger one, those that read its GGUF file."""
    if model == model_files.BASE_MODEL:
        return PEERS
    files = partial(model_files.larger_gguf, model)
    return Forebay(files), LlamaCpp(files), OpenVinoGenAI(files)
