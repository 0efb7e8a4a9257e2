"""Output items of a response: the message, whole or as the events it grows by."""

from __future__ import annotations

from typing import Any

from forebay.server.streaming import named_event


class ItemEvents:
    """Output items as they grow, one open at a time, and the numbers of all events. All that a model writes is text so
    far; a reasoning item or a function call would be one more kind here, with a method as `text` that closes the open
    item and begins its own."""

    def __init__(self, response_id: str) -> None:
        self.finished: list[dict[str, Any]] = []
        self._response_id = response_id
        self._next = 0  # sequence number
        self._open = False
        self._texts: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def event(self, kind: str, **fields: Any) -> bytes:
        number, self._next = self._next, self._next + 1
        return named_event(kind, {"type": kind, "sequence_number": number} | fields)

    def text(self, piece: str, logprobs: list[dict[str, Any]]) -> bytes:
        """A piece of the message's text, in an item that begins here if none is open."""
        data = b"" if self._open else self._begin()
        self._texts.append(piece)
        self._logprobs += logprobs
        return data + self.event("response.output_text.delta", **self._part(), delta=piece, logprobs=logprobs)

    def close(self, status: str) -> bytes:
        """End the open item. A response without any gets an empty message. status: of the item."""
        data = b"" if self._open or self.finished else self._begin()
        if not self._open:
            return b""
        item = message_item(self._response_id, len(self.finished), status, "".join(self._texts), self._logprobs)
        (part,) = item["content"]
        said = {"text": part["text"], "logprobs": part["logprobs"]}
        data += self.event("response.output_text.done", **self._part(), **said)
        data += self.event("response.content_part.done", **self._part(), part=part)
        data += self.event("response.output_item.done", output_index=len(self.finished), item=item)
        self.finished.append(item)
        self._open = False
        return data

    def _begin(self) -> bytes:
        self._open, self._texts, self._logprobs = True, [], []
        index = len(self.finished)
        item = message_item(self._response_id, index, "in_progress", "", [])
        (part,) = item["content"]
        begun = self.event("response.output_item.added", output_index=index, item=item | {"content": []})
        return begun + self.event("response.content_part.added", **self._part(), part=part)

    def _part(self) -> dict[str, Any]:
        """Where the open item's one part is."""
        index = len(self.finished)
        return {"item_id": _message_id(self._response_id, index), "output_index": index, "content_index": 0}


def message_item(
    response_id: str, index: int, status: str, text: str, logprobs: list[dict[str, Any]]
) -> dict[str, Any]:
    """An assistant's message with one part. index: which item of the output it is."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}
    head = {"id": _message_id(response_id, index), "type": "message", "status": status, "role": "assistant"}
    return head | {"content": [part]}


def _message_id(response_id: str, index: int) -> str:
    unique = response_id.removeprefix("resp_")
    return f"msg_{unique}" if index == 0 else f"msg_{unique}_{index}"
