"""Chunks: contiguous runs of bytes moved between ranks, and the order in which they land."""

from __future__ import annotations

from triton.language import core as tl

from ditron.language._core import (
    attributes,
    byte_count,
    emit_void,
    enum,
    flag,
    integer,
    pointer,
    primitive,
    signal_pointer,
    writable,
)

__all__ = ["fence", "getmem", "getmem_nbi", "putmem", "putmem_nbi", "putmem_signal", "putmem_signal_nbi", "quiet"]


def _move(name, op, dst, src, nbytes, rank, nbi, granularity, semantic):
    writable(name, pointer(name, dst, "dst"), "dst")
    pointer(name, src, "src")
    nbytes = byte_count(name, nbytes, [dst, src], semantic)
    rank = integer(name, rank, "rank", tl.int32, semantic, minimum=0)
    attrs = attributes(nbi=flag(name, nbi, "nbi"), granularity=enum(name, granularity, "granularity"))
    emit_void(op, [dst, src, nbytes, rank], semantic, attrs)


@primitive
def putmem(dst, src, nbytes, rank, nbi=False, granularity="block", _semantic=None):
    """Copy ``nbytes`` bytes from ``src`` here to ``dst`` at ``rank``. OpenSHMEM: ``shmem_putmem``.

    On return ``src`` may be reused; when the bytes have landed is another question, answered by :func:`quiet`, or by a
    signal (:func:`putmem_signal`, or :func:`notify` after it).

    Args:
        dst: symmetric pointer, as it is on this rank. src: pointer to local memory.
        nbytes: bytes, not elements (int scalar, taken as int64); a multiple of the elements' size.
        rank: rank in the group (int scalar).
        nbi: return at once, before ``src`` may be reused; :func:`quiet` waits for it.
        granularity: who takes part in the copy: the whole ``"block"`` (program), each ``"warp"``, each ``"thread"``.

        dl.putmem(inbox_ptr, outbox_ptr, n_elements * 4, right)
    """
    _move("putmem", "putmem", dst, src, nbytes, rank, nbi, granularity, _semantic)


@primitive
def putmem_nbi(dst, src, nbytes, rank, granularity="block", _semantic=None):
    """:func:`putmem` that returns at once; ``src`` must be left alone until :func:`quiet`."""
    _move("putmem_nbi", "putmem", dst, src, nbytes, rank, True, granularity, _semantic)


@primitive
def getmem(dst, src, nbytes, rank, nbi=False, granularity="block", _semantic=None):
    """Copy ``nbytes`` bytes from ``src`` at ``rank`` to ``dst`` here. OpenSHMEM: ``shmem_getmem``.

    Args: as in :func:`putmem`, but ``src`` is the symmetric pointer. With ``nbi``, ``dst`` holds the bytes only after
    :func:`quiet`.
    """
    _move("getmem", "getmem", dst, src, nbytes, rank, nbi, granularity, _semantic)


@primitive
def getmem_nbi(dst, src, nbytes, rank, granularity="block", _semantic=None):
    """:func:`getmem` that returns at once; ``dst`` holds the bytes after :func:`quiet`."""
    _move("getmem_nbi", "getmem", dst, src, nbytes, rank, True, granularity, _semantic)


def _put_signal(name, dst, src, nbytes, sig, value, rank, op, nbi, granularity, semantic):
    writable(name, pointer(name, dst, "dst"), "dst")
    pointer(name, src, "src")
    nbytes = byte_count(name, nbytes, [dst, src], semantic)
    signal_pointer(name, sig, "sig")
    value = integer(name, value, "value", tl.int64, semantic)
    rank = integer(name, rank, "rank", tl.int32, semantic, minimum=0)
    attrs = attributes(
        op=enum(name, op, "signal_op", "op"),
        nbi=flag(name, nbi, "nbi"),
        granularity=enum(name, granularity, "granularity"),
    )
    emit_void("putmem_signal", [dst, src, nbytes, sig, value, rank], semantic, attrs)


@primitive
def putmem_signal(dst, src, nbytes, sig, value, rank, op="set", nbi=False, granularity="block", _semantic=None):
    """:func:`putmem`, and once the bytes have landed, set (or add to) a signal at ``rank``.

    Args:
        dst, src, nbytes, rank, nbi, granularity: as in :func:`putmem`.
        sig: pointer to an int64 signal, symmetric. value: what is written or added. op: ``"set"`` or ``"add"``.

    OpenSHMEM: ``shmem_putmem_signal``. The receiver waits by :func:`wait` or :func:`signal_wait_until`.

        dl.putmem_signal(inbox_ptr, outbox_ptr, nbytes, signal_ptr, epoch, right)
    """
    _put_signal("putmem_signal", dst, src, nbytes, sig, value, rank, op, nbi, granularity, _semantic)


@primitive
def putmem_signal_nbi(dst, src, nbytes, sig, value, rank, op="set", granularity="block", _semantic=None):
    """:func:`putmem_signal` that returns at once; ``src`` must be left alone until :func:`quiet`."""
    _put_signal("putmem_signal_nbi", dst, src, nbytes, sig, value, rank, op, True, granularity, _semantic)


@primitive
def fence(_semantic=None):
    """Order puts: those before it reach each rank before those after it. It waits for nothing.

    OpenSHMEM: ``shmem_fence``.
    """
    emit_void("fence", [], _semantic)


@primitive
def quiet(_semantic=None):
    """Wait until all puts of this program have landed and all its gets are here. OpenSHMEM: ``shmem_quiet``."""
    emit_void("quiet", [], _semantic)
