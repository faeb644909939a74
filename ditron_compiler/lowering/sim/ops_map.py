"""tl.map_elementwise: a function of scalars, with branches of its own, called for every element."""

from __future__ import annotations

from ditron_compiler import ir

from .branches import Body
from .builder import Builder
from .elementwise import int_attribute
from .function import GRID, FunctionLowering, Unsupported, lowers, new_function


@lowers("tt.map_elementwise")
def _map(fn: FunctionLowering, op: ir.Operation) -> None:
    pack = int_attribute(op, "pack", 1)
    results = [fn.type_of(r, op) for r in op.results]
    shape = results[0].shape
    if shape[-1] % pack:
        raise Unsupported(op, f"the simulator maps rows of a multiple of pack={pack} elements, got {shape[-1]}")
    tiles = [fn.tile_or_splat(v, shape, fn.type_of(v, op).elem) for v in op.operands]
    captured = _captured(fn, op)
    types = [t.elem.carrier for t in tiles for _ in range(pack)]
    outputs = [r.elem.carrier for r in results for _ in range(pack)]
    symbol = _outline(fn, op, types, captured, outputs)
    buffers = [fn.new_buffer(shape, r.elem) for r in results]
    outside = [fn.scalar(v) for v in captured]
    with fn.nest((*shape[:-1], shape[-1] // pack)) as nest:
        first = nest.mul(nest.idx[-1], pack)
        places = [(*nest.idx[:-1], nest.add(first, k)) for k in range(pack)]
        elements = [nest.element(tile, place) for tile in tiles for place in places]
        values = fn.call(symbol, [*elements, *outside, *fn.grid], tuple(outputs))
        for number, value in enumerate(values):
            nest.store(buffers[number // pack], value, places[number % pack])
    fn.set(op, *buffers)


def _captured(fn: FunctionLowering, op: ir.Operation) -> list[ir.Value]:
    """Values from outside that the function uses; scalars only."""
    inside = {result for o in _operations(op) for result in o.results}
    blocks = [block for o in [op, *_operations(op)] for region in o.regions for block in region.blocks]
    inside |= {argument for block in blocks for argument in block.arguments}
    captured: list[ir.Value] = []
    for operand in (v for o in _operations(op) for v in o.operands):
        if operand in inside or operand in captured:
            continue
        if not isinstance(fn.env.get(operand), ir.Value):
            raise Unsupported(op, "the simulator has no tl.map_elementwise of a function that uses a tile of its "
                                  "surroundings: pass the tile")  # fmt: skip
        captured.append(operand)
    return captured


def _operations(op: ir.Operation) -> list[ir.Operation]:
    """All operations inside of `op`."""
    found = []
    for region in op.regions:
        for block in region.blocks:
            for view in block.operations:
                found += [view.operation, *_operations(view.operation)]
    return found


def _outline(fn: FunctionLowering, op: ir.Operation, types: list[str], captured: list[ir.Value], outputs: list[str]
             ) -> str:  # fmt: skip
    """Make a function of the region; returns its symbol. It also gets the program's place in the grid."""
    if fn.function.name != "tt.func":
        raise Unsupported(op, "the simulator has no tl.map_elementwise inside of another")
    symbol = f"ditron_map_{len(fn.state.defined)}"
    inputs = [*types, *[fn.type_of(v, op).elem.carrier for v in captured], *GRID]
    b = Builder(fn.state.types, op.location)
    made = new_function(b, fn.function, symbol, inputs, outputs, private=True)
    block = b.block(made.regions[0], inputs)
    b.enter(block)
    arguments = list(block.arguments)
    inner = FunctionLowering(op, fn.state, b, arguments[-len(GRID) :])
    inner.env.update(zip([*op.regions[0].blocks[0].arguments, *captured], arguments[: -len(GRID)], strict=True))
    Body(inner, op, made.regions[0], block).lower()
    for name, signature in b.called.items():
        fn.state.declared.setdefault(name, signature)
    fn.state.defined.add(symbol)
    return symbol
