"""Loads, stores and atomics with a scope and a semantic, and NVLink Sharp's in-switch reductions."""

from __future__ import annotations

from triton.language import core as tl

from ditron.language._core import attributes, describe, element, emit, emit_void, enum, pointer, primitive, writable
from ditron_compiler.passes.kernel.assign_latencies import AHEAD

__all__ = [
    "atomic_add",
    "atomic_cas",
    "ld",
    "load_ahead",
    "multimem_ld_reduce",
    "multimem_red",
    "multimem_st",
    "red",
    "st",
]

_MULTIMEM = ("float32", "float16", "bfloat16")


def _result(ptr: tl.tensor) -> tl.dtype:
    """What a load through ``ptr`` gives."""
    pointee = ptr.dtype.element_ty
    return ptr.type.with_element_ty(pointee) if ptr.type.is_block() else pointee


def _target(name, ptr):
    return writable(name, pointer(name, ptr, "ptr", tensors=True), "ptr")


def _order(name, scope, semantic, allowed):
    """The scope and semantic attributes; ``allowed`` are the semantics that make sense for the op."""
    attr = enum(name, semantic, "semantic")
    chosen = tl._unwrap_if_constexpr(semantic)
    if chosen not in allowed:
        raise ValueError(f"dl.{name}: semantic must be one of {', '.join(map(repr, allowed))}, got {chosen!r}")
    return {"scope": enum(name, scope, "scope"), "semantic": attr}


@primitive
def ld(ptr, scope="gpu", semantic="relaxed", _semantic=None):
    """Load around the caches that other GPUs' writes do not reach.

    Args:
        ptr: pointer, or a tensor of pointers.
        scope: who writes there: programs of this ``"gpu"``, of this ``"node"``, or of the ``"world"``.
        semantic: ``"relaxed"`` or ``"acquire"``.

    Returns the element, or a tensor of the pointers' shape. On GPUs several threads load an element of a tensor that
    has fewer elements than a program has threads, and may see different values while it is written.
    """
    pointer("ld", ptr, "ptr", tensors=True)
    return emit(
        "ld", [ptr], _result(ptr), _semantic, attributes(**_order("ld", scope, semantic, ("relaxed", "acquire")))
    )


@primitive
def load_ahead(value, iterations, _semantic=None):
    """Issue a load of a loop ``iterations`` iterations ahead of its use, instead of ``num_stages - 1``.

    Args:
        value: what ``tl.load`` or a descriptor's ``load`` returns, in the body of a ``for`` loop that Triton pipelines.
        iterations: 1 or more, known at compile time. Shared memory holds so many tiles, and one or two more.

    Returns ``value``. Where one load has to wait, as for what the kernel before this one writes, and the other one has
    not, as of a weight, this lets more of the other's tiles be in flight by then. All loads of such a loop must say it:
    Triton pipelines none there that does not; and a loop that waits or copies between ranks can have none, as loads of
    later iterations would be in front of that. On NVIDIA's GPUs; it is ignored elsewhere.

        for k in range(0, K, BK):
            b = dl.load_ahead(weight.load([column, k]), 5)
            a = dl.load_ahead(rows.load([0, k]), 2)
            acc = tl.dot(a, b.T, acc)
    """
    count = tl._unwrap_if_constexpr(iterations)
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"dl.load_ahead: iterations must be an integer at compile time, got {describe(iterations)}")
    if not 1 <= count < 1 << 16:
        raise ValueError(f"dl.load_ahead: iterations must be from 1 to 65535, got {count}")
    if not isinstance(value, tl.tensor) or value.dtype.is_ptr():
        raise TypeError(f"dl.load_ahead: value must be what a load returns, got {describe(value)}")
    value.handle.set_attr(AHEAD, _semantic.builder.get_int32_attr(count))
    return value


@primitive
def st(ptr, value, scope="gpu", semantic="relaxed", _semantic=None):
    """Store for others to see. ``value`` is converted to the element type; ``scope`` says who reads.

    Args: ``ptr`` and ``scope`` as in :func:`ld`; ``semantic``: ``"relaxed"`` or ``"release"``.
    """
    _target("st", ptr)
    value = element("st", value, ptr, _semantic)
    emit_void("st", [ptr, value], _semantic, attributes(**_order("st", scope, semantic, ("relaxed", "release"))))


@primitive
def atomic_add(ptr, value, scope="gpu", semantic="relaxed", _semantic=None):
    """Add to memory and return what was there. Pointers of peers (:func:`symm_at`) are fine.

    Args: ``ptr`` and ``scope`` as in :func:`ld`; ``semantic``: any.
    """
    _target("atomic_add", ptr)
    value = element("atomic_add", value, ptr, _semantic)
    order = _order("atomic_add", scope, semantic, ("relaxed", "acquire", "release", "acq_rel"))
    return emit("atomic_add", [ptr, value], _result(ptr), _semantic, attributes(**order))


@primitive
def atomic_cas(ptr, cmp, value, scope="gpu", semantic="relaxed", _semantic=None):
    """Where memory holds ``cmp``, write ``value``; return what was there.

    Args: ``ptr`` and ``scope`` as in :func:`ld`; ``semantic``: any.
    """
    _target("atomic_cas", ptr)
    cmp = element("atomic_cas", cmp, ptr, _semantic, "cmp")
    value = element("atomic_cas", value, ptr, _semantic)
    order = _order("atomic_cas", scope, semantic, ("relaxed", "acquire", "release", "acq_rel"))
    return emit("atomic_cas", [ptr, cmp, value], _result(ptr), _semantic, attributes(**order))


@primitive
def red(ptr, value, op="add", scope="gpu", semantic="relaxed", _semantic=None):
    """Combine into memory and return nothing, which is cheaper than :func:`atomic_add`.

    Args: ``ptr`` and ``scope`` as in :func:`ld`; ``op``: ``"add"``, ``"min"`` or ``"max"``; ``semantic``:
    ``"relaxed"`` or ``"release"``.
    """
    _target("red", ptr)
    value = element("red", value, ptr, _semantic)
    order = _order("red", scope, semantic, ("relaxed", "release"))
    emit_void("red", [ptr, value], _semantic, attributes(op=enum("red", op, "reduce_op", "op"), **order))


def _multimem(name, ptr):
    pointer(name, ptr, "ptr", tensors=True)
    if str(ptr.dtype.element_ty) not in ("fp32", "fp16", "bf16"):
        raise TypeError(f"dl.{name}: ptr must point to {', '.join(_MULTIMEM)}, got {describe(ptr)}")
    return ptr


@primitive
def multimem_ld_reduce(ptr, op="add", _semantic=None):
    """Load the combination of every rank's element through a multicast pointer; the switch reduces.

    Args: ``ptr``: what :func:`multicast_ptr` gave (plus offsets), to float32, float16 or bfloat16; ``op``: ``"add"``,
    ``"min"`` or ``"max"``. Returns the element, or a tensor of the pointers' shape.
    """
    _multimem("multimem_ld_reduce", ptr)
    return emit(
        "multimem_ld_reduce",
        [ptr],
        _result(ptr),
        _semantic,
        attributes(op=enum("multimem_ld_reduce", op, "reduce_op", "op")),
    )


@primitive
def multimem_st(ptr, value, _semantic=None):
    """Store to every rank at once through a multicast pointer; ``ptr`` as in :func:`multimem_ld_reduce`."""
    value = element("multimem_st", value, _multimem("multimem_st", ptr), _semantic)
    emit_void("multimem_st", [ptr, value], _semantic)


@primitive
def multimem_red(ptr, value, op="add", _semantic=None):
    """Combine into every rank's element at once through a multicast pointer; arguments as above."""
    value = element("multimem_red", value, _multimem("multimem_red", ptr), _semantic)
    emit_void("multimem_red", [ptr, value], _semantic, attributes(op=enum("multimem_red", op, "reduce_op", "op")))
