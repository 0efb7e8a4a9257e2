"""The connections of a run: opened when needed, reused while both sides keep them open."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Self

from forebay.bench.client.connection import Connection
from forebay.bench.client.endpoint import Endpoint, Origin, parse_base_url
from forebay.errors import BenchError

CONNECT_LIMIT_S = 30.0
SLOW_WINDOW_BYTES = 4096  # receive buffer of a slow reader, so that the server feels it and not the kernel
_Address = tuple[socket.AddressFamily, Any]


class ConnectionPool:
    """Owns every connection of a run. A connection is with the pool, or with the one request that it carries."""

    def __init__(self, origin: Origin, addresses: list[_Address], context: ssl.SSLContext | None) -> None:
        self._origin = origin
        self._addresses = addresses
        self._context = context
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()

    @classmethod
    async def of(cls, endpoint: Endpoint) -> Self:
        """Look the host up, once for the run; connect nothing. Raises BenchError if it has no address."""
        origin = parse_base_url(endpoint.base_url)
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise BenchError(
                f"base_url {endpoint.base_url!r}: host {origin.host!r} has no address ({error}); "
                "check its spelling and the network",
                param="base_url",
            ) from error
        context = ssl.create_default_context() if origin.tls else None
        return cls(origin, [(family, address) for family, _, _, _, address in found], context)

    def take_idle(self) -> Connection | None:
        """The one used last: it is the least likely to have been given up by the server."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def connect(self, *, slow_reader: bool = False) -> Connection:
        """A new connection. Raises OSError."""
        failure: OSError | None = None
        for address in list(self._addresses):
            try:
                connection = await self._connect(*address, slow_reader)
            except OSError as error:
                failure = error
                continue
            self._addresses.remove(address)  # the address that worked comes first from now on
            self._addresses.insert(0, address)
            return connection
        assert failure is not None
        raise failure

    async def _connect(self, family: socket.AddressFamily, address: Any, slow_reader: bool) -> Connection:
        """A numeric address needs no look-up. uvloop makes its own sockets twice as fast as it takes over ours."""
        loop = asyncio.get_running_loop()
        host, port = address[:2]
        where: dict[str, Any] = {"host": host, "port": port, "family": family}
        if slow_reader:
            where = {"sock": await _narrow_socket(family, address)}
        name = self._origin.host if self._context is not None else None
        _, connection = await loop.create_connection(
            lambda: Connection(self._open.discard), ssl=self._context, server_hostname=name, **where
        )
        self._open.add(connection)
        return connection

    def give_back(self, connection: Connection) -> None:
        """After its exchange, however that went."""
        if connection.reusable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()
        self._idle.clear()


async def _narrow_socket(family: socket.AddressFamily, address: Any) -> socket.socket:
    """Connected. The receive buffer must be set before it is."""
    raw = socket.socket(family, socket.SOCK_STREAM)
    try:
        raw.setblocking(False)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_WINDOW_BYTES)
        await asyncio.get_running_loop().sock_connect(raw, address)
    except BaseException:
        raw.close()
        raise
    return raw
