"""What handlers of plain JSON routes answer with."""

from __future__ import annotations

import msgspec
from starlette.responses import Response


def json_reply(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
