"""Connections between the processes of a node: small messages, and file descriptors with them.

Every two ranks are connected by a Unix domain socket, so a process that ends, in whatever way, is noticed by the others
at once. The sockets have names in the kernel only (Linux's abstract names), and only while ranks connect.
"""

from __future__ import annotations

import array
import json
import os
import secrets
import socket
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ditron_compiler.errors import DitronError

__all__ = ["GroupSockets", "LocalSockets", "RankLeft"]

_LARGEST = 1 << 17  # bytes of a message; one that is larger than a socket's buffer cannot be sent
_SECONDS = 600.0  # as long as NCCL's collectives wait


class RankLeft(DitronError):
    """A rank has ended, or does not come."""


class LocalSockets:
    """This process's connections; ``connections`` by world rank.

    Every rank of a collective call makes it, in the same order as other calls with the same ranks.
    """

    def __init__(self, rank: int, connections: dict[int, socket.socket], seconds: float = _SECONDS):
        self.rank, self._connections, self.seconds = rank, connections, seconds
        # Also when the interpreter exits, before anything there can take long: the others wait.
        weakref.finalize(self, _close, connections)

    @classmethod
    def connect(cls, rank: int, all_gather: Callable[[Any], list], seconds: float = 60.0) -> LocalSockets:
        """Connect all ranks; ``all_gather`` gives every rank's value on every rank. Collective.

        Raises OSError on every rank when a rank cannot be reached.
        """
        connections: dict[int, socket.socket] = {}
        name, token, failure = f"ditron-{secrets.token_hex(16)}", secrets.token_hex(16), ""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.settimeout(seconds)
                listener.bind(f"\0{name}")
                listener.listen(64)
            except OSError as error:
                failure = f"rank {rank}: {error}"
            ranks = all_gather((name, token, failure))
            failures = [text for _, _, text in ranks if text]
            if not failures:
                try:
                    for peer in range(rank):
                        connections[peer] = _connect(ranks[peer][0], [rank, ranks[peer][1]], seconds)
                    for _ in range(rank + 1, len(ranks)):
                        peer, connection = _accept(listener, token)
                        connections[peer] = connection
                except (OSError, ValueError) as error:
                    failure = f"rank {rank}: {error}"
                failures = [text for text in all_gather(failure) if text]
        sockets = cls(rank, connections)
        if failures:
            sockets.close()
            raise OSError(f"processes of the node cannot be connected by Unix domain sockets: {'; '.join(failures)}")
        return sockets

    def all_gather(
        self, ranks: Sequence[int], what: str, value: Any, descriptor: int | None = None
    ) -> list[tuple[Any, int | None]]:
        """Every rank's (value, descriptor), by position in ``ranks``; ``what`` is what the call is for.

        Values are what JSON can say. Descriptors of other ranks are new ones, which the caller closes.
        Raises RankLeft, naming the rank, when one has ended or does not come in time; DitronError when one is in
        another call.
        """
        message = json.dumps([what, value]).encode()
        if len(message) > _LARGEST:
            raise DitronError(f"{what}: a message of {len(message)} bytes, expected {_LARGEST} at most")
        others = [peer for peer in ranks if peer != self.rank]
        left: dict[int, str] = {}
        for peer in others:
            self._send(peer, message, descriptor, left)
        answers: dict[int, tuple[Any, int | None]] = {self.rank: (json.loads(message), descriptor)}
        limit = time.monotonic() + self.seconds
        for peer in others:
            if peer not in left:
                self._receive(peer, what, limit, answers, left)
        elsewhere = {peer: answer[0][0] for peer, answer in answers.items() if answer[0][0] != what}
        if left or elsewhere:
            for peer, (_, received) in answers.items():
                if received is not None and peer != self.rank:
                    os.close(received)
            if left:
                raise RankLeft(f"{what}: " + "; ".join(left.values()))
            others_do = "; ".join(f"rank {peer} is in {call}" for peer, call in elsewhere.items())
            raise DitronError(f"rank {self.rank} is in {what}, but {others_do}: every rank must make the same calls")
        return [(answers[peer][0][1], answers[peer][1]) for peer in ranks]

    def _send(self, peer: int, message: bytes, descriptor: int | None, left: dict[int, str]) -> None:
        rights = [] if descriptor is None else [array.array("i", [descriptor])]
        connection = self._connections.get(peer)
        if connection is None:
            raise DitronError("symmetric memory is used after ditron.finalize()")
        connection.settimeout(self.seconds)
        try:
            connection.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds) for fds in rights])
        except (BrokenPipeError, ConnectionResetError):
            left[peer] = _ended(peer)

    def _receive(self, peer: int, what: str, limit: float, answers: dict, left: dict[int, str]) -> None:
        connection = self._connections[peer]
        connection.settimeout(max(limit - time.monotonic(), 0.001))
        rights = array.array("i")
        try:
            message, ancillary, _, _ = connection.recvmsg(
                _LARGEST, socket.CMSG_LEN(rights.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except TimeoutError:
            left[peer] = f"rank {peer} did not come within {self.seconds:g} s"
            return
        except ConnectionResetError:
            message, ancillary = b"", []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
        if message:
            answers[peer] = json.loads(message), rights[0] if rights else None
        else:
            left[peer] = _ended(peer)

    def ended(self, ranks: Sequence[int]) -> list[int]:
        """Those of ``ranks`` whose process is seen to have ended; does not wait."""
        found = []
        for peer in ranks:
            connection = self._connections.get(peer)
            if connection is None:
                continue
            connection.setblocking(False)
            try:
                if not connection.recv(1, socket.MSG_PEEK):
                    found.append(peer)
            except BlockingIOError:
                pass
            except OSError:
                found.append(peer)
        return found

    def close(self) -> None:
        """End the connections; the others notice. May be called again."""
        _close(self._connections)


class GroupSockets:
    """The connections among the ranks of a group: world ranks, in the group's order; ``name`` tells groups apart."""

    def __init__(self, sockets: LocalSockets, ranks: Sequence[int], name: str):
        self.sockets, self.ranks, self.name = sockets, list(ranks), name

    def all_gather(self, what: str, value: Any, descriptor: int | None = None) -> list[tuple[Any, int | None]]:
        """As :meth:`LocalSockets.all_gather`."""
        return self.sockets.all_gather(self.ranks, f"{what} in {self.name}", value, descriptor)

    def values(self, what: str, value: Any) -> list:
        """Every rank's value."""
        return [answer for answer, _ in self.all_gather(what, value)]

    def ended(self) -> list[int]:
        """World ranks of the group whose process has ended."""
        return self.sockets.ended([rank for rank in self.ranks if rank != self.sockets.rank])


def _close(connections: dict[int, socket.socket]) -> None:
    for connection in connections.values():
        connection.close()
    connections.clear()


def _connect(name: str, greeting: list, seconds: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(seconds)
        connection.connect(f"\0{name}")
        connection.send(json.dumps(greeting).encode())
    except OSError:
        connection.close()
        raise
    return connection


def _accept(listener: socket.socket, token: str) -> tuple[int, socket.socket]:
    """The next rank that connects and proves to be one, by this user and the token."""
    while True:
        connection, _ = listener.accept()
        connection.settimeout(listener.gettimeout())
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user == os.getuid():
            peer, given = json.loads(connection.recv(4096) or b"[0, 0]")
            if given == token:
                return peer, connection
        connection.close()


def _ended(peer: int) -> str:
    return f"rank {peer} has ended (its process, or ditron.finalize() there)"
