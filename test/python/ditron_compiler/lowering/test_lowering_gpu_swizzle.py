"""Tile order: a bijection, in the order that the rules say, and computed by the lowered IR as by the closed form."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ditron_compiler import ir, pass_registry
from ditron_compiler.ir.passmanager import PassManager
from ditron_compiler.lowering.lower_swizzle import LowerSwizzle
from ditron_compiler.lowering.tile_order import swizzled

MODES = ["gather", "scatter"]


def order(size, block, rank, nodes, per_node, mode):
    tiles = -(-size // block)
    return [swizzled(t, size, block, rank, nodes * per_node, mode, per_node) for t in range(tiles)]


def key(tile, size, block, rank, nodes, per_node, mode):
    """What tiles are sorted by: when their last rank arrives (or the first has its turn); straddling; number."""
    shard = -(-size // (nodes * per_node))
    owners = range(tile * block // shard, (min((tile + 1) * block, size) - 1) // shard + 1)
    node, local = divmod(rank, per_node)
    before = 0 if mode == "gather" else 1  # scatter begins behind the own node and rank
    turns = [((q // per_node - node - before) % nodes, (q % per_node - local - before) % per_node) for q in owners]
    straddles = len(owners) > 1
    number = 0 if straddles else tile
    return (max(turns), straddles, number) if mode == "gather" else (min(turns), not straddles, number)


layouts = st.tuples(st.integers(1, 6), st.integers(1, 12))
shapes = st.one_of(  # any; shards of whole tiles; a few rows more or less
    st.tuples(st.integers(1, 500), st.integers(1, 60)),
    st.tuples(st.integers(1, 40), st.integers(1, 12)).map(lambda p: (p[0] * p[1], p[1])),
    st.tuples(st.integers(1, 40), st.sampled_from([16, 32, 64]), st.integers(-3, 3)).map(
        lambda p: (max(p[0] * p[1] + p[2], 1), p[1])
    ),
)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=200, deadline=None)
@given(shape=shapes, layout=layouts, data=st.data())
@example(shape=(8 * 997, 256), layout=(1, 8), data=None)
@example(shape=(16 * 997, 256), layout=(2, 8), data=None)
@example(shape=(32 * 997, 256), layout=(4, 8), data=None)
@example(shape=(16 * 1024, 256), layout=(2, 8), data=None)
@example(shape=(6, 5), layout=(1, 3), data=None)  # shards smaller than tiles, the last tile short
def test_every_tile_once_and_in_order(mode, shape, layout, data):
    (size, block), (nodes, per_node) = shape, layout
    ranks = range(nodes * per_node)
    for rank in ranks if data is None else [data.draw(st.sampled_from(ranks))]:
        tiles = order(size, block, rank, nodes, per_node, mode)
        assert sorted(tiles) == list(range(len(tiles)))
        keys = [key(t, size, block, rank, nodes, per_node, mode) for t in tiles]
        assert keys == sorted(keys)


@settings(max_examples=50, deadline=None)
@given(shard=st.integers(1, 6), block=st.integers(1, 64), layout=layouts, data=st.data())
def test_own_shard_comes_first_in_gather_and_last_in_scatter(shard, block, layout, data):
    """Said once more without the key, where no tile straddles."""
    nodes, per_node = layout
    size, rank = shard * block * nodes * per_node, data.draw(st.integers(0, nodes * per_node - 1))
    own = list(range(rank * shard, (rank + 1) * shard))
    assert order(size, block, rank, nodes, per_node, "gather")[:shard] == own
    assert order(size, block, rank, nodes, per_node, "scatter")[-shard:] == own


@settings(deadline=None)
@given(shard=st.integers(1, 400), block=st.integers(1, 400), layout=layouts)
def test_scatter_begins_with_tiles_that_all_owners_wait_for(shard, block, layout):
    """Every rank with rows gets some from the first tiles of all ranks, or two of them share the tile that has them."""
    nodes, per_node = layout
    ranks, size = nodes * per_node, shard * nodes * per_node
    first = {swizzled(0, size, block, rank, ranks, "scatter", per_node) for rank in range(ranks)}
    owners = set()
    for tile in first:
        owners |= set(range(tile * block // shard, (min((tile + 1) * block, size) - 1) // shard + 1))
    assert owners == set(range(ranks))


def test_straddling_tiles_wait_in_gather_and_hurry_in_scatter():
    """Shards of 10 in tiles of 4: tile 2 is of ranks 0 and 1, 7 of ranks 2 and 3."""
    assert order(40, 4, 0, 1, 4, "gather") == [0, 1, 3, 4, 2, 5, 6, 8, 9, 7]
    assert order(40, 4, 1, 1, 4, "gather") == [3, 4, 5, 6, 8, 9, 7, 0, 1, 2]  # 2, with the last to arrive, at the end
    assert order(40, 4, 0, 1, 4, "scatter") == [2, 3, 4, 7, 5, 6, 8, 9, 0, 1]  # 2 is rank 0's, and 1's: at once


def interpret(function: ir.Operation, arguments: list[int], queries: dict[str, int]) -> int:
    """Run the straight line of i32 arithmetic that the pass leaves."""
    block = function.regions[0].blocks[0]
    values = dict(zip(block.arguments, arguments, strict=True))
    trunc = lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1)  # noqa: E731
    binary = {
        "addi": int.__add__,
        "subi": int.__sub__,
        "muli": int.__mul__,
        "divsi": trunc,
        "minsi": min,
        "remsi": lambda a, b: a - b * trunc(a, b),
        "maxsi": max,
        "andi": int.__and__,
        "minui": lambda a, b: min(a, b, key=lambda x: x % 2**32),
        "cmpi": {
            0: int.__eq__,
            1: int.__ne__,
            2: int.__lt__,
            4: int.__gt__,
            5: int.__ge__,
            9: lambda a, b: a % 2**32 >= b % 2**32,
        },
    }
    for op in block.operations:
        dialect, name = op.name.split(".")
        operands = [values[operand] for operand in op.operands]
        if op.name == "func.return":
            return operands[0]
        if name == "constant":
            result = ir.IntegerAttr(op.attributes["value"]).value
        elif dialect == "ditron":
            result = queries[name]
        elif name == "select":
            result = operands[1] if operands[0] else operands[2]
        elif name == "cmpi":
            result = int(binary["cmpi"][ir.IntegerAttr(op.attributes["predicate"]).value](*operands))
        else:
            result = binary[name](*operands)
        assert -(2**31) <= result < 2**31, f"{op} overflows"
        values[op.results[0]] = result
    raise AssertionError("no return")


def swizzle_of(mode: str, block: str = "%b", team: str = "group") -> ir.Module:
    return ir.Module.parse(f"""func.func @f(%t: i32, %s: i32, %b: i32) -> i32 {{
      %c = arith.constant 128 : i32
      %m = ditron.swizzle {mode} %t of %s by {block} team {team}
      return %m : i32
    }}""")


@pytest.mark.parametrize("one_node", [False, True])
@pytest.mark.parametrize("mode", MODES)
@settings(deadline=None)
@given(
    size=st.one_of(st.integers(1, 2**28), st.integers(1, 3000)),
    block=st.integers(1, 2**10),
    layout=layouts,
    data=st.data(),
)
def test_the_pass_computes_what_the_function_says(one_node, mode, size, block, layout, data):
    nodes, per_node = (1, layout[0] * layout[1]) if one_node else layout
    rank = data.draw(st.integers(0, nodes * per_node - 1))
    tile = data.draw(st.integers(0, -(-size // block) - 1))
    with ir.Context(), ir.Location.unknown():
        module = swizzle_of(mode)
        LowerSwizzle(one_node=one_node).run(module.operation)
        queries = {
            "rank": rank,
            "num_ranks": nodes * per_node,
            "node": rank // per_node,
            "local_rank": rank % per_node,
            "num_local_ranks": per_node,
        }
        computed = interpret(next(iter(module.body.operations)), [tile, size, block], queries)
    # One node is the special case of several that is written down for itself.
    assert computed == swizzled(tile, size, block, rank, nodes * per_node, mode, per_node)


def depend_on(operations: list[ir.Operation], value: ir.Value) -> list[ir.Operation]:
    """The operations that depend on ``value``; operations in order."""
    reached, found = {value}, []
    for op in operations:
        if any(operand in reached for operand in op.operands):
            reached |= set(op.results)
            found.append(op)
    return found


@pytest.mark.parametrize(
    "mode, team, total, once, divisions",
    [
        ("gather", "group", 64, 13, 3),
        ("scatter", "group", 60, 15, 3),
        ("gather", "node", 33, 9, 2),
        ("scatter", "node", 29, 10, 2),
    ],
)
def test_how_many_operations_it_takes(mode, team, total, once, divisions):
    """The numbers that the pass's documentation gives."""
    pass_registry.register_named("lower-swizzle")
    with ir.Context(), ir.Location.unknown():
        module = swizzle_of(mode, "%c", team)
        PassManager.parse("builtin.module(lower-swizzle,canonicalize,cse)").run(module)
        body = next(iter(module.body.operations)).regions[0].blocks[0]
        arithmetic = [op for op in body.operations if op.name.startswith("arith.") and op.name != "arith.constant"]
        per_tile = depend_on(arithmetic, body.arguments[0])
        constants = {op.results[0] for op in body.operations if op.name == "arith.constant"}
        divides = [
            op for op in arithmetic if op.name in ("arith.divsi", "arith.remsi") and op.operands[1] not in constants
        ]
    assert (len(arithmetic), len(arithmetic) - len(per_tile), len(divides)) == (total, once, divisions)
    for number in (total, once):
        assert str(number) in LowerSwizzle.__doc__
