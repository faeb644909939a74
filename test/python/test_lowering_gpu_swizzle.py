"""Tile order: a bijection for any size, block and rank, and begun where the mode says."""
from hypothesis import given
from hypothesis import strategies as st

from ditron_compiler import ir
from ditron_compiler.lowering.swizzle import LowerSwizzle, swizzled

sizes, blocks, ranks = st.integers(1, 5000), st.integers(1, 600), st.integers(1, 72)
modes = st.sampled_from(["gather", "scatter"])


@given(size=sizes, block=blocks, num_ranks=ranks, mode=modes, data=st.data())
def test_every_tile_is_visited_once(size, block, num_ranks, mode, data):
    rank = data.draw(st.integers(0, num_ranks - 1))
    tiles = -(-size // block)
    order = [swizzled(t, size, block, rank, num_ranks, mode) for t in range(tiles)]
    assert sorted(order) == list(range(tiles))


@given(shard=st.integers(1, 64), block=st.integers(1, 64), num_ranks=ranks, data=st.data())
def test_own_shard_comes_first_in_gather_and_last_in_scatter(shard, block, num_ranks, data):
    size, rank = shard * block * num_ranks, data.draw(st.integers(0, num_ranks - 1))
    tiles = shard * num_ranks
    own = list(range(rank * shard, (rank + 1) * shard))
    assert [swizzled(t, size, block, rank, num_ranks, "gather") for t in range(shard)] == own
    assert [swizzled(t, size, block, rank, num_ranks, "scatter") for t in range(tiles - shard, tiles)] == own


def interpret(function: ir.Operation, arguments: list[int], rank: int, num_ranks: int) -> int:
    """Run the straight line of i32 arithmetic that the pass leaves."""
    block = function.regions[0].blocks[0]
    values = dict(zip(block.arguments, arguments, strict=True))
    trunc = lambda a, b: abs(a) // abs(b) * (1 if a * b >= 0 else -1)  # noqa: E731
    binary = {"arith.addi": int.__add__, "arith.subi": int.__sub__, "arith.muli": int.__mul__, "arith.divsi": trunc,
              "arith.remsi": lambda a, b: a - b * trunc(a, b)}
    for op in block.operations:
        if op.name == "func.return":
            return values[op.operands[0]]
        if op.name == "arith.constant":
            result = ir.IntegerAttr(op.attributes["value"]).value
        elif op.name in ("ditron.rank", "ditron.num_ranks"):
            result = rank if op.name == "ditron.rank" else num_ranks
        else:
            result = binary[op.name](*(values[operand] for operand in op.operands))
        assert -2**31 <= result < 2**31, f"{op} overflows"
        values[op.results[0]] = result
    raise AssertionError("no return")


@given(size=st.integers(1, 2**28), block=st.integers(1, 2**10), num_ranks=ranks, mode=modes, data=st.data())
def test_the_pass_computes_what_the_function_says(size, block, num_ranks, mode, data):
    rank = data.draw(st.integers(0, num_ranks - 1))
    tile = data.draw(st.integers(0, -(-size // block) - 1))
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(f"""func.func @f(%t: i32, %s: i32, %b: i32) -> i32 {{
          %m = ditron.swizzle {mode} %t of %s by %b
          return %m : i32
        }}""")
        LowerSwizzle().run(module.operation)
        function = next(iter(module.body.operations))
        computed = interpret(function, [tile, size, block], rank, num_ranks)
        assert computed == swizzled(tile, size, block, rank, num_ranks, mode)
