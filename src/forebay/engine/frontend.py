"""The part of a front end that sync and async faces share: what is needed beside the engine itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forebay.core.clock import Clock
from forebay.core.messages import EngineInfo
from forebay.engine.input_processor import InputProcessor
from forebay.engine.output_processor import OutputProcessor
from forebay.observe.metrics import Metrics
from forebay.observe.recorder import Recorder
from forebay.tokenizer import Tokenizer, load_tokenizer
from forebay.weights.checkpoint import open_checkpoint


@dataclass(frozen=True, slots=True)
class TextModel:
    """What a front end must know of the model: its tokenizer, and the digest its cache namespace is rooted in."""

    tokenizer: Tokenizer
    digest: str

    @classmethod
    def load(cls, path: Path) -> TextModel:
        """Read it from a model that is on disk. Raises SetupError subclasses."""
        checkpoint = open_checkpoint(path)
        try:
            return cls(load_tokenizer(checkpoint), checkpoint.digest)
        finally:
            checkpoint.close()


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Everything between a user and the engine's messages."""

    tokenizer: Tokenizer
    info: EngineInfo
    inputs: InputProcessor
    outputs: OutputProcessor
    metrics: Metrics
    recorder: Recorder

    @classmethod
    def build(cls, model: TextModel, info: EngineInfo, clock: Clock, recorder: Recorder | None = None) -> FrontEnd:
        metrics, recorder = Metrics(), recorder or Recorder()
        return cls(
            tokenizer=model.tokenizer,
            info=info,
            inputs=InputProcessor(model.tokenizer, info, model.digest, clock),
            outputs=OutputProcessor(model.tokenizer, metrics, recorder),
            metrics=metrics,
            recorder=recorder,
        )
