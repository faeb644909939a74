"""A pass of torch.compile: a gather and a product, or a product and a reduction over ranks, become one operator."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch._inductor.pattern_matcher import stable_topological_sort
from torch.fx import Graph, Node

from ditron.distributed.torch_groups import as_group
from ditron.kernels.operands import DTYPES
from ditron.nn import collective_patterns
from ditron.nn.collective_patterns import (
    Collective,
    Product,
    find_gather,
    find_product,
    find_reduction,
    find_scatter,
    is_view,
    value,
)

__all__ = ["FuseCollectives", "fuse_collectives"]

aten = torch.ops.aten
ops = torch.ops.ditron


def fuse_collectives(*groups: Any) -> FuseCollectives:
    """A pass that replaces collectives next to products by operators that hide them, in these groups of torch's.

    Args:
        groups: process groups, or meshes of one dimension; their ditron groups are made here, collectively.

    What is found, in the forward and in the backward graph: ``all_gather`` and ``mm`` or ``addmm`` (``ag_gemm``; with
    several products the widest, and the others read what it has gathered), ``mm`` and ``reduce_scatter`` (``gemm_rs``),
    ``mm`` and ``all_reduce`` (``gemm_ar``); along any dimension but the last.

        torch.compile(block, options={"post_grad_custom_pre_pass": ditron.nn.fuse_collectives(mesh["tp"])})
    """
    return FuseCollectives({_torch_name(group): as_group(group).name for group in groups})


def _torch_name(group: Any) -> str:
    return group.group_name if isinstance(group, torch.distributed.ProcessGroup) else group.get_group().group_name


class FuseCollectives(CustomGraphPass):
    """``names`` maps torch's names of groups to ours; called with a graph, it changes the graph.

    ``replaced`` counts what it has done, by operator.
    """

    def __init__(self, names: Mapping[str, str]):
        self.names = dict(names)
        self.replaced: dict[str, int] = {}

    def uuid(self) -> Any:
        """What a compiled graph is cached by."""
        return get_hash_for_files((__file__, collective_patterns.__file__), repr(sorted(self.names.items())))

    def __call__(self, graph: Graph) -> None:
        for node in list(graph.nodes):
            if gather := self._ours(find_gather(node)):
                self._fuse_gather(graph, gather)
            elif scatter := self._ours(find_scatter(node)):
                self._fuse_reduction(graph, scatter, "gemm_rs")
            elif reduction := self._ours(find_reduction(node)):
                self._fuse_reduction(graph, reduction, "gemm_ar")
        graph.lint()

    def _ours(self, found: Collective | None) -> Collective | None:
        if found is None or found.group not in self.names or value(found.source).dtype not in DTYPES:
            return None
        source = value(found.source)
        is_static = all(isinstance(extent, int) for extent in source.shape)
        return found if is_static and (found.dim < source.ndim - 1 or found.reduction) and source.ndim > 1 else None

    def _count(self, name: str) -> None:
        self.replaced[name] = self.replaced.get(name, 0) + 1

    def _fuse_gather(self, graph: Graph, gather: Collective) -> None:
        products = [product for product in _products_of(gather.result) if not _depends(product, gather.result)]
        if not products:
            return
        product = max(products, key=lambda product: value(product.result).shape[1])
        group, result, dim = self.names[gather.group], gather.result, gather.dim
        shape = value(result).shape
        build = _Builder(graph, product.result)
        rows = build.rows_first(gather.source, dim)
        weight = build(aten.permute.default, product.b, [1, 0])
        arguments = (rows, weight) if product.bias is None else (rows, weight, product.bias)
        like = value(product.result)
        pair = build.operator(ops.ag_gemm_gathered.default, arguments, group, (like, like.new_empty(0)))
        fused = build.item(pair, 0, like.new_empty(like.shape))
        whole = build.item(pair, 1, like.new_empty(like.shape[0], shape[-1]))
        matrix = build(aten.reshape.default, build.restore(fused, shape, dim), list(like.shape))
        product.result.replace_all_uses_with(matrix)
        gathered = build.contiguous(build.restore(whole, shape, dim))
        result.replace_all_uses_with(gathered)
        _erase(product.result)
        _erase(result)
        if gathered.users:
            stable_topological_sort(graph)  # what reads the rows may stand before the product
        else:
            alone = _Builder(graph, pair).operator(ops.ag_gemm.default, arguments, group, value(fused))
            fused.replace_all_uses_with(alone)
            _erase(gathered)
            _erase(fused)
        self._count("ag_gemm")

    def _fuse_reduction(self, graph: Graph, reduction: Collective, name: str) -> None:
        source, dim = reduction.source, reduction.dim
        matrix = source
        while is_view(matrix) and (matrix is source or len(matrix.users) == 1):
            matrix = matrix.args[0]  # type: ignore[assignment]
        product, shape, result = find_product(matrix), value(source).shape, value(reduction.result)
        if (
            product is None
            or product.bias is not None  # it would be added once per rank
            or (product.result is not source and len(product.result.users) != 1)
            or shape[-1] != value(product.result).shape[1]
            or dim == len(shape) - 1
            or reduction.reduction not in ("sum", "avg" if name == "gemm_rs" else "sum")
        ):
            return
        build = _Builder(graph, reduction.result)
        a = product.a
        if dim:
            a = build.rows_first(build(aten.reshape.default, a, [*shape[:-1], value(a).shape[-1]]), dim)
        weight = build(aten.permute.default, product.b, [1, 0])
        like = result.new_empty(result.numel() // shape[-1], shape[-1])
        fused = build.operator(getattr(ops, name).default, (a, weight), self.names[reduction.group], like)
        fused = build.contiguous(build.restore(fused, result.shape, dim))
        if reduction.reduction == "avg":
            fused = build(aten.div.Tensor, fused, reduction.ranks)
        reduction.result.replace_all_uses_with(fused)
        _erase(reduction.result)
        self._count(name)


class _Builder:
    """Adds nodes before another one, each with the tensor that stands for its result."""

    def __init__(self, graph: Graph, before: Node):
        self.graph, self.before = graph, before

    def __call__(self, target: Callable, *args: Any) -> Node:
        values = [value(arg) if isinstance(arg, Node) else arg for arg in args]
        return self._add(target, args, {}, target(*values))

    def operator(self, target: Callable, args: tuple, group: str, result: Any) -> Node:
        return self._add(target, args, {"group": group}, result)

    def item(self, pair: Node, index: int, result: torch.Tensor) -> Node:
        return self._add(operator.getitem, (pair, index), {}, result)

    def rows_first(self, tensor: Node, dim: int) -> Node:
        """``[.., K]`` as a matrix whose rows begin with those at 0 along ``dim``."""
        shape = value(tensor).shape
        if dim:
            tensor = self(aten.permute.default, tensor, _moved(len(shape), dim, 0))
        return tensor if len(shape) == 2 else self(aten.reshape.default, tensor, [-1, shape[-1]])

    def restore(self, rows: Node, shape: Any, dim: int) -> Node:
        """The inverse, to ``[.., N]`` with the extents of ``shape`` but the last."""
        if len(shape) == 2:
            return rows
        first = [shape[i] for i in _moved(len(shape), dim, 0)][:-1]
        tensor = self(aten.reshape.default, rows, [*first, value(rows).shape[1]])
        return self(aten.permute.default, tensor, _moved(len(shape), 0, dim)) if dim else tensor

    def contiguous(self, tensor: Node) -> Node:
        """In memory as the collective's result was, which what follows may rely on."""
        if value(tensor).is_contiguous():
            return tensor
        contiguous = {"memory_format": torch.contiguous_format}
        return self._add(aten.clone.default, (tensor,), contiguous, value(tensor).clone(**contiguous))

    def _add(self, target: Callable, args: tuple, kwargs: dict, result: Any) -> Node:
        with self.graph.inserting_before(self.before):
            node = self.graph.call_function(target, args, kwargs)
        node.meta["val"] = result
        return node


def _moved(ndim: int, source: int, target: int) -> list[int]:
    order = list(range(ndim))
    order.insert(target, order.pop(source))
    return order


def _products_of(gathered: Node) -> list[Product]:
    """The products that have all rows of a gathered tensor on their left."""
    columns = value(gathered).shape[-1]
    shapes, matrices = [gathered], []
    for node in shapes:  # grows: views of views
        shapes += [user for user in node.users if is_view(user) and value(user).shape[-1:] == (columns,)]
        matrices += [node] if value(node).ndim == 2 else []
    found = [(matrix, find_product(user)) for matrix in matrices for user in matrix.users]
    return [product for matrix, product in found if product is not None and product.a is matrix]


def _depends(product: Product, node: Node) -> bool:
    """Whether a weight or a bias is computed from ``node``."""
    seen, pending = set(), [product.b, *([product.bias] if product.bias is not None else [])]
    while pending:
        current = pending.pop()
        if current is node:
            return True
        if current not in seen:
            seen.add(current)
            pending += current.all_input_nodes
    return False


def _erase(node: Node) -> None:
    """Take out a node that nobody uses, and those that nobody uses then: dead code elimination keeps collectives."""
    if not node._erased and not node.users and node.op == "call_function":
        inputs = node.all_input_nodes
        node.graph.erase_node(node)
        for other in inputs:
            _erase(other)
