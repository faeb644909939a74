"""Connections between ranks; ranks are threads."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from fake_node import all_gathers

from ditron import DitronError
from ditron.distributed.local_sockets import GroupSockets, LocalSockets, RankLeft


def connected(body, ranks: int, seconds: float = 20.0, gathers=None) -> list:
    """What ``body(sockets)`` returns on each rank, or its error."""
    gathers = gathers or all_gathers(ranks)

    def run(rank: int):
        try:
            sockets = LocalSockets.connect(rank, gathers[rank], seconds)
        except OSError as error:
            return error
        sockets.seconds = seconds
        try:
            return body(sockets)
        except DitronError as error:
            return error
        finally:
            sockets.close()

    with ThreadPoolExecutor(ranks) as threads:
        return list(threads.map(run, range(ranks)))


def test_values_and_descriptors():
    """Each rank writes into a file of its own, and reads those of the others by the descriptors that came."""

    def body(sockets):
        mine = os.memfd_create("mine")
        os.write(mine, f"of rank {sockets.rank}".encode())
        texts = []
        for turn in range(20):
            answers = sockets.all_gather(range(3), "exchange", [turn, sockets.rank], mine)
            assert [value for value, _ in answers] == [[turn, rank] for rank in range(3)]
            texts.append([os.pread(descriptor, 100, 0).decode() for _, descriptor in answers])
            for rank, (_, descriptor) in enumerate(answers):
                if rank != sockets.rank:
                    assert not os.get_inheritable(descriptor)
                    os.close(descriptor)
        os.close(mine)
        return texts

    expected = [[f"of rank {rank}" for rank in range(3)]] * 20
    assert connected(body, 3) == [expected] * 3


def test_groups():
    """Ranks that share groups take part in them in one order; others need not wait."""

    def body(sockets):
        found = []
        for ranks in ([2, 0], [0, 1], [1, 2]):
            if sockets.rank in ranks:
                found.append(GroupSockets(sockets, ranks, str(ranks)).values("call", sockets.rank))
        return found

    assert connected(body, 3) == [[[2, 0], [0, 1]], [[0, 1], [1, 2]], [[2, 0], [1, 2]]]


def test_a_rank_that_does_not_come():
    def body(sockets):
        if sockets.rank == 0:
            time.sleep(1.5)
            return None
        return sockets.all_gather(range(2), "call", None)

    _, error = connected(body, 2, seconds=0.5)
    assert isinstance(error, RankLeft) and str(error) == "call: rank 0 did not come within 0.5 s"


def test_who_has_ended():
    def body(sockets):
        sockets.all_gather(range(3), "first", None)
        if sockets.rank == 2:
            return None
        limit = time.monotonic() + 20
        while not (ended := sockets.ended([0, 1, 2])):
            assert time.monotonic() < limit
        sockets.all_gather(range(2), "second", None)
        return ended

    assert connected(body, 3) == [[2], [2], None]


def test_a_message_that_is_too_large():
    [error] = connected(lambda sockets: sockets.all_gather([0], "call", "x" * (1 << 18)), 1)
    assert "a message of 262" in str(error)


def test_a_stranger_is_not_let_in():
    """Who finds the name but not the token is no rank."""
    gathers = all_gathers(2)

    def intruding(value):
        ranks = gathers[1](value)
        if isinstance(value, tuple):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect(f"\0{ranks[0][0]}")
                stranger.send(b'[1, "guessed"]')
                time.sleep(0.2)
        return ranks

    answers = connected(
        lambda sockets: sockets.all_gather(range(2), "call", sockets.rank), 2, gathers=[gathers[0], intruding]
    )
    assert answers == [[(0, None), (1, None)]] * 2


def test_ranks_that_cannot_connect():
    """As in containers of their own: an OSError on every rank, which says of whom."""
    gathers = all_gathers(2)

    def elsewhere(value):
        ranks = gathers[1](value)
        return [("ditron-nobody", "", ""), *ranks[1:]] if isinstance(value, tuple) else ranks

    errors = connected(lambda sockets: None, 2, seconds=0.5, gathers=[gathers[0], elsewhere])
    for error in errors:
        assert isinstance(error, OSError) and "rank 1: " in str(error) and "rank 0: " in str(error)
