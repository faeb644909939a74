"""Where a traced graph gathers, scatters, reduces and multiplies: what torch's functional collectives look like in it.

A collective along another dimension than the first one is surrounded by torch with a split, or slices, and a cat.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.fx import Node

__all__ = ["Collective", "Product", "find_gather", "find_product", "find_reduction", "find_scatter", "is_view", "value"]

aten = torch.ops.aten
c10d = torch.ops._c10d_functional
SPLITS = (aten.split.Tensor, aten.split_with_sizes.default)
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


def value(node: Node) -> torch.Tensor:
    """The tensor without memory that stands for a node's result."""
    return node.meta["val"]


def is_view(node: Node) -> bool:
    """Whether a node gives its argument another shape."""
    return node.target in VIEWS


@dataclass
class Collective:
    """``result`` is ``source`` gathered, or scattered, along ``dim``, or reduced, in torch's group of that name."""

    source: Node
    result: Node
    dim: int
    group: str
    reduction: str = ""
    ranks: int = 0


@dataclass
class Product:
    """``result`` is ``a @ b``, plus ``bias`` [N] if there is one; ``[.., K]`` and ``[.., N]`` if ``shape`` is given."""

    a: Node
    b: Node
    result: Node
    bias: Node | None = None


def _argument(node: Node, index: int, name: str, default: object = None) -> object:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _collective(wait: Node, target: object) -> Node | None:
    """The collective that ``wait`` waits for, if nobody else sees its result."""
    started = wait.args[0] if wait.target is c10d.wait_tensor.default else None
    if isinstance(started, Node) and started.target is target and len(started.users) == 1:
        return started
    return None


def find_gather(node: Node) -> Collective | None:
    """The all-gather whose result ``node`` is."""
    dim, waited = 0, node
    if node.target is aten.cat.default:
        given = _argument(node, 1, "dim", 0)
        found = _pieces(node.args[0], 0)  # type: ignore[arg-type]
        if found is None or not isinstance(given, int):
            return None
        waited, dim = found, given % value(node).ndim
    started = _collective(waited, c10d.all_gather_into_tensor.default)
    if started is None:
        return None
    source, ranks, group = started.args
    if node is not waited and len(node.args[0]) != ranks:  # type: ignore[arg-type]
        return None
    return Collective(source, node, dim, group, ranks=ranks)  # type: ignore[arg-type]


def find_scatter(node: Node) -> Collective | None:
    """The reduce-scatter whose result ``node`` is."""
    started = _collective(node, c10d.reduce_scatter_tensor.default)
    if started is None:
        return None
    source, reduction, ranks, group = started.args
    dim: int | None = 0
    readers = [started]
    if source.target is aten.cat.default and _argument(source, 1, "dim", 0) == 0:  # type: ignore[union-attr]
        pieces = source.args[0]  # type: ignore[union-attr]
        dim = _dim_of(pieces[0])  # type: ignore[index, arg-type]
        whole = _pieces(pieces, dim)  # type: ignore[arg-type]
        if whole is None or len(pieces) != ranks or len(source.users) != 1:  # type: ignore[arg-type, union-attr]
            return None
        source, readers = whole, [_cut(piece) for piece in pieces]  # type: ignore[union-attr]
    if not set(source.users) <= set(readers):  # type: ignore[union-attr]
        return None
    return Collective(source, node, dim, group, reduction, ranks)  # type: ignore[arg-type]


def find_reduction(node: Node) -> Collective | None:
    """The all-reduce whose result ``node`` is."""
    started = _collective(node, c10d.all_reduce.default)
    if started is None or len(started.args[0].users) != 1:  # type: ignore[union-attr]
        return None
    source, reduction, group = started.args
    return Collective(source, node, 0, group, reduction)  # type: ignore[arg-type]


def _cut(piece: Node) -> Node:
    """The split that a piece is an item of, or the slice that it is."""
    return piece.args[0] if piece.target is operator.getitem else piece  # type: ignore[return-value]


def _dim_of(piece: Node) -> int | None:
    """The dimension along which a piece was cut; None for what is no piece."""
    cut = _cut(piece)
    if cut.target in SPLITS:
        dim = _argument(cut, 2, "dim", 0)
    elif cut.target is aten.slice.Tensor:
        dim = _argument(cut, 1, "dim", 0)
    else:
        return None
    return dim % value(piece).ndim if isinstance(dim, int) else None


def _pieces(pieces: Sequence[Node], dim: int | None) -> Node | None:
    """The tensor that is cut into equal ``pieces`` along a dimension, in their order, all of it."""
    if dim is None or not pieces or any(_dim_of(piece) != dim for piece in pieces):
        return None
    sources = {_cut(piece).args[0] for piece in pieces}
    extent = value(pieces[0]).shape[dim]
    if len(sources) != 1 or len({_cut(piece).target for piece in pieces}) != 1:
        return None
    if pieces[0].target is operator.getitem:
        in_order = len({_cut(piece) for piece in pieces}) == 1 and [p.args[1] for p in pieces] == [*range(len(pieces))]
    else:
        in_order = all(_is_slice(piece, i * extent) for i, piece in enumerate(pieces))
    (whole,) = sources
    is_all = all(value(p).shape[dim] == extent for p in pieces) and value(whole).shape[dim] == extent * len(pieces)  # type: ignore[arg-type]
    return whole if in_order and is_all else None  # type: ignore[return-value]


def _is_slice(node: Node, start: int) -> bool:
    return _argument(node, 2, "start", 0) == start and _argument(node, 4, "step", 1) == 1


def find_product(node: Node) -> Product | None:
    """The product of two matrices, with a bias for each column or without, whose result ``node`` is."""
    if node.target is aten.mm.default:
        a, b = node.args
        return Product(a, b, node)  # type: ignore[arg-type]
    if node.target is aten.addmm.default and not node.kwargs:
        bias, a, b = node.args
        if value(bias).ndim == 1 and value(bias).shape[0] == value(node).shape[1]:  # type: ignore[arg-type]
            return Product(a, b, node, bias)  # type: ignore[arg-type]
    return None
