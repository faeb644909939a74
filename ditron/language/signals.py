"""Signals: 64-bit counters in symmetric memory by which programs tell each other that data is there.

A signal is an epoch counter that only grows, so nothing is reset between calls: call ``e`` waits for ``>= e``.
"""

from __future__ import annotations

from triton.language import core as tl

from ditron.language._core import (
    attributes,
    describe,
    emit,
    emit_handle,
    emit_void,
    enum,
    integer,
    primitive,
    signal_pointer,
    token,
    token_type,
)
from ditron.language._descriptor import ordered_descriptor

__all__ = ["consume_token", "notify", "signal_fetch", "signal_op", "signal_wait_until", "wait"]


@primitive
def wait(ptr, count=1, value=1, cmp="ge", scope="world", semantic="acquire", _semantic=None):
    """Wait until all of ``ptr[0 .. count)`` satisfy ``signal cmp value``; returns a token.

    On return every thread of the program may read what the notifiers wrote before they notified. Make those reads
    depend on the wait by :func:`consume_token`, so that none is moved above it.

    Args:
        ptr: pointer to int64 signals, in this rank's memory.
        count: how many (int scalar). 0 waits for nothing.
        value: what they are compared with (int scalar, taken as int64).
        cmp: ``"eq"``, ``"ne"``, ``"gt"``, ``"ge"``, ``"lt"`` or ``"le"``.
        scope: who notifies: programs of this ``"gpu"``, of this ``"node"``, or of the ``"world"``, on any node.
        semantic: ``"acquire"``, or ``"relaxed"`` when nothing is read on the strength of the wait.

        token = dl.wait(signal_ptr + peer, value=epoch)
        x = tl.load(dl.consume_token(inbox_ptr, token) + offsets)
    """
    signal_pointer("wait", ptr)
    count = integer("wait", count, "count", tl.int32, _semantic, minimum=0)
    value = integer("wait", value, "value", tl.int64, _semantic)
    attrs = attributes(
        cmp=enum("wait", cmp, "cmp"), scope=enum("wait", scope, "scope"), semantic=enum("wait", semantic, "semantic")
    )
    return token(emit_handle("wait", [ptr, count, value], _semantic.builder.get_int32_ty(), _semantic, attrs))


@primitive
def consume_token(value, token, _semantic=None):
    """``value``, usable only after the wait that gave ``token``: what is loaded through it is loaded after the wait.

    Args:
        value: a pointer, a tensor of pointers, any other scalar or tensor, or a tensor descriptor.
        token: what :func:`wait` returned.

    Returns the same value. Consume on the *base* pointer, once, rather than on a tensor of pointers.

        a_ptr = dl.consume_token(a_ptr, dl.wait(signal_ptr, num_ranks, epoch))
    """
    if not isinstance(getattr(token, "type", None), token_type):
        raise TypeError(f"dl.consume_token: token must be what dl.wait returned, got {describe(token)}")
    if isinstance(value, tl.tensor_descriptor_base):
        # Triton lets no opaque call take a descriptor; the coordinates of each access carry the dependence instead.
        zero = _semantic.scalar_constant(0, tl.int32)
        if isinstance(value, ordered_descriptor):  # consumed before: depend on both waits
            value, zero = value.plain, value.zero
        return ordered_descriptor(value, emit("consume_token", [zero, token], tl.int32, _semantic, pure=True))
    if not isinstance(value, (tl.tensor, tl.constexpr, int, float)):
        raise TypeError(
            "dl.consume_token: value must be a pointer, a scalar, a tensor or a tensor descriptor, got "
            f"{describe(value)}"
        )
    value = _semantic.to_tensor(value)
    return emit("consume_token", [value, token], value.type, _semantic, pure=True)


@primitive
def notify(ptr, rank, value=1, op="set", scope="world", _semantic=None):
    """Publish all that this program did so far to ``rank``, then set (or add to) a signal there.

    Implies the barrier of the program's threads and the release fence; one thread writes. Stores and puts of the whole
    program that come before it are visible to whoever sees the signal.

    Args:
        ptr: pointer to the int64 signal, as it is on this rank (a symmetric address).
        rank: the rank, in the group, whose signal is written (int scalar).
        value: what is written or added (int scalar, taken as int64).
        op: ``"set"`` or ``"add"``.
        scope: who waits: programs of this ``"gpu"``, of this ``"node"``, or of the ``"world"``, on any node.

        tl.store(dl.symm_at(inbox_ptr, right) + offsets, x)
        dl.notify(signal_ptr, right, epoch)
    """
    signal_pointer("notify", ptr)
    rank = integer("notify", rank, "rank", tl.int32, _semantic, minimum=0)
    value = integer("notify", value, "value", tl.int64, _semantic)
    attrs = attributes(op=enum("notify", op, "signal_op", "op"), scope=enum("notify", scope, "scope"))
    emit_void("notify", [ptr, value, rank], _semantic, attrs)


@primitive
def signal_op(ptr, value, rank, op="set", _semantic=None):
    """Set (or add to) a signal of ``rank``, with no barrier and no fence: OpenSHMEM's ``shmem_signal_set`` / ``_add``.

    Args: as in :func:`notify`, in OpenSHMEM's order.
    """
    signal_pointer("signal_op", ptr)
    value = integer("signal_op", value, "value", tl.int64, _semantic)
    rank = integer("signal_op", rank, "rank", tl.int32, _semantic, minimum=0)
    emit_void("signal_op", [ptr, value, rank], _semantic, attributes(op=enum("signal_op", op, "signal_op", "op")))


@primitive
def signal_fetch(ptr, semantic="acquire", _semantic=None):
    """The value of a signal of this rank (int64 scalar), without waiting: OpenSHMEM's ``shmem_signal_fetch``.

    Args:
        ptr: pointer to the int64 signal, in this rank's memory.
        semantic: ``"acquire"``, or ``"relaxed"`` when nothing is read on the strength of the value.

        if dl.signal_fetch(signal_ptr) >= epoch:
            x = tl.load(inbox_ptr + offsets)
    """
    signal_pointer("signal_fetch", ptr)
    attrs = attributes(semantic=enum("signal_fetch", semantic, "semantic"))
    return emit("signal_fetch", [ptr], tl.int64, _semantic, attrs)


@primitive
def signal_wait_until(ptr, value, cmp="ge", _semantic=None):
    """Wait until one signal satisfies ``signal cmp value`` and return its value (int64 scalar).

    OpenSHMEM: ``shmem_signal_wait_until``; what came with the signal (:func:`putmem_signal`) may be read after it.

    Args: ``ptr``, ``value`` and ``cmp`` as in :func:`wait`.
    """
    signal_pointer("signal_wait_until", ptr)
    value = integer("signal_wait_until", value, "value", tl.int64, _semantic)
    attrs = attributes(cmp=enum("signal_wait_until", cmp, "cmp"))
    return emit("signal_wait_until", [ptr, value], tl.int64, _semantic, attrs)
