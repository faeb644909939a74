"""Random tile programs: as TTIR text for the lowering, and as numpy to say what they mean.

Everything is a 2-d tile of i32, so results are exact; loops carry tiles and hand them on permuted, transposed or
untouched, because that is where a lowering that keeps tiles in buffers could go wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

Shape = tuple[int, int]
SHAPES: list[Shape] = [(16, 16), (16, 32), (32, 16)]
Env = dict[str, np.ndarray]
_BINARY: dict[str, Callable] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "xori": np.bitwise_xor, "maxsi": np.maximum,
}  # fmt: skip


def spell(shape: tuple[int, ...], elem: str = "i32") -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{elem}>"


@dataclass
class Scope:
    """The tiles that can be used at a place, by name, and the text written there."""

    tiles: dict[str, Shape]
    lines: list[str] = field(default_factory=list)
    steps: list[Callable[[Env], None]] = field(default_factory=list)

    def run(self, env: Env) -> None:
        for step in self.steps:
            step(env)


class Program:
    """`text` is the module; `expected(inputs, flag)` are the tiles it stores, one after the other."""

    def __init__(self, seed: int, statements: int = 8):
        self.random = random.Random(seed)
        self.count = 0
        self.inputs = {f"%in{k}": shape for k, shape in enumerate(SHAPES)}
        top = Scope(dict(self.inputs))
        self.block(top, statements, depth=0)
        self.top = top
        self.outputs = self.random.sample(sorted(set(top.tiles)), min(4, len(top.tiles)))
        self.text = self._module(top)

    def expected(self, inputs: list[np.ndarray], flag: int) -> list[np.ndarray]:
        env: Env = dict(zip(self.inputs, inputs, strict=True))
        env["flag"] = np.array(flag)
        with np.errstate(over="ignore"):
            self.top.run(env)
        return [env[name] for name in self.outputs]

    # --- statements ---------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pick(self, scope: Scope, shape: Shape | None = None) -> str:
        """A tile of `shape`; one is made if there is none."""
        fitting = [name for name, have in scope.tiles.items() if shape is None or have == shape]
        if fitting:
            # Recent tiles more often: chains are the interesting programs.
            return self.random.choice(fitting[-4:] if self.random.random() < 0.7 else fitting)
        return self.constant(scope, shape)

    def add(self, scope: Scope, shape: Shape, line: str, value: Callable[[Env], np.ndarray], name: str = "") -> str:
        name = name or self.name()
        scope.lines.append(f"{name} = {line}")
        scope.steps.append(lambda env: env.__setitem__(name, value(env).astype(np.int32)))
        scope.tiles[name] = shape
        return name

    def constant(self, scope: Scope, shape: Shape) -> str:
        number = self.random.randint(-5, 5)
        line = f'"arith.constant"() <{{value = dense<{number}> : {spell(shape)}}}> : () -> {spell(shape)}'
        return self.add(scope, shape, line, lambda env: np.full(shape, number))

    def block(self, scope: Scope, statements: int, depth: int) -> None:
        kinds = ["binary"] * 5 + ["trans", "reshape", "spread", "dot", "constant", "memory"]
        kinds += ["loop", "loop", "branch"] if depth < 2 else []
        for _ in range(statements):
            kind = self.random.choice(kinds)
            if kind in ("loop", "branch"):
                getattr(self, kind)(scope, depth)
            else:
                getattr(self, kind)(scope, self.pick(scope)) if kind != "constant" else self.constant(
                    scope, self.random.choice(SHAPES)
                )

    def binary(self, scope: Scope, a: str) -> None:
        shape = scope.tiles[a]
        b, op = self.pick(scope, shape), self.random.choice(list(_BINARY))
        self.add(scope, shape, f"arith.{op} {a}, {b} : {spell(shape)}", lambda env: _BINARY[op](env[a], env[b]))

    def trans(self, scope: Scope, a: str) -> None:
        m, n = scope.tiles[a]
        line = f'"tt.trans"({a}) <{{order = array<i32: 1, 0>}}> : ({spell((m, n))}) -> {spell((n, m))}'
        self.add(scope, (n, m), line, lambda env: env[a].T)

    def reshape(self, scope: Scope, a: str) -> None:
        m, n = scope.tiles[a]
        shape = (n, m) if m != n else (m, n)
        flat, line = self.name(), f'"tt.reshape"({a}) : ({spell((m, n))}) -> {spell((m * n,))}'
        scope.lines.append(f"{flat} = {line}")
        line = f'"tt.reshape"({flat}) : ({spell((m * n,))}) -> {spell(shape)}'
        self.add(scope, shape, line, lambda env: env[a].reshape(shape))

    def spread(self, scope: Scope, a: str) -> None:
        """Sum along an axis, and broadcast the sums back."""
        m, n = scope.tiles[a]
        axis = self.random.randint(0, 1)
        rest, kept = ((n,), (1, n)) if axis == 0 else ((m,), (m, 1))
        row, column, body = self.name(), self.name(), self.name()
        scope.lines.append(
            f'{row} = "tt.reduce"({a}) <{{axis = {axis} : i32}}> ({{\n^bb0({body}l: i32, {body}r: i32):\n'
            f'{body} = arith.addi {body}l, {body}r : i32\n"tt.reduce.return"({body}) : (i32) -> ()\n}})'
            f" : ({spell((m, n))}) -> {spell(rest)}"
        )
        expand = f'"tt.expand_dims"({row}) <{{axis = {axis} : i32}}> : ({spell(rest)}) -> {spell(kept)}'
        scope.lines.append(f"{column} = {expand}")
        line = f'"tt.broadcast"({column}) : ({spell(kept)}) -> {spell((m, n))}'

        def value(env: Env) -> np.ndarray:
            return np.broadcast_to(env[a].sum(axis, keepdims=True, dtype=np.int32), (m, n))

        self.add(scope, (m, n), line, value)

    def dot(self, scope: Scope, a: str) -> None:
        m, k = scope.tiles[a]
        n = self.random.choice([16, 32] if k == m == 16 else [16])
        b, c = self.pick(scope, (k, n)), self.pick(scope, (m, n))
        left, right = self.name(), self.name()
        scope.lines.append(f"{left} = arith.trunci {a} : {spell((m, k))} to {spell((m, k), 'i8')}")
        scope.lines.append(f"{right} = arith.trunci {b} : {spell((k, n))} to {spell((k, n), 'i8')}")
        line = (
            f'"tt.dot"({left}, {right}, {c}) <{{inputPrecision = 0 : i32, maxNumImpreciseAcc = 0 : i32}}> : '
            f"({spell((m, k), 'i8')}, {spell((k, n), 'i8')}, {spell((m, n))}) -> {spell((m, n))}"
        )

        def value(env: Env) -> np.ndarray:
            return env[a].astype(np.int8).astype(np.int32) @ env[b].astype(np.int8).astype(np.int32) + env[c]

        self.add(scope, (m, n), line, value)

    def memory(self, scope: Scope, a: str) -> None:
        """Store, change nothing, load: the load must see the store, and later stores must not reach it."""
        shape = scope.tiles[a]
        where = f"%scratch{SHAPES.index(shape)}"
        pointers = spell(shape, "!tt.ptr<i32>")
        scope.lines.append(f'"tt.store"({where}, {a}) : ({pointers}, {spell(shape)}) -> ()')
        self.add(scope, shape, f'"tt.load"({where}) : ({pointers}) -> {spell(shape)}', lambda env: env[a])

    # --- regions ------------------------------------------------------------------------------------------------

    def loop(self, scope: Scope, depth: int) -> None:
        shapes = [self.random.choice(SHAPES[:2]) for _ in range(self.random.randint(1, 3))]
        inits = [self.pick(scope, shape) for shape in shapes]
        inner = [self.name() for _ in shapes]
        trips, result = self.random.randint(0, 3), self.name()
        body = Scope({**scope.tiles, **dict(zip(inner, shapes, strict=True))})
        self.block(body, self.random.randint(1, 4), depth + 1)
        yields = [self.pick(body, shape) for shape in shapes]
        if self.random.random() < 0.4:  # hand on permuted, as far as the shapes allow
            same = {shape: [v for v, s in zip(inner, shapes, strict=True) if s == shape] for shape in shapes}
            yields = [self.random.choice(same[shape]) for shape in shapes]
        for k, shape in enumerate(shapes):
            if shape == (16, 16) and self.random.random() < 0.4:  # a carried tile that becomes the transpose of one
                turned = self.random.choice([v for v, s in zip(inner, shapes, strict=True) if s == shape])
                self.trans(body, turned)
                yields[k] = list(body.tiles)[-1]
        types = ", ".join(spell(s) for s in shapes)
        carried = ", ".join(f"{i} = {v}" for i, v in zip(inner, inits, strict=True))
        scope.lines.append(
            f"{result}:{len(shapes)} = scf.for {result}k = %c0 to %c{trips} step %c1 "
            f"iter_args({carried}) -> ({types}) : i32 {{"
        )
        scope.lines += body.lines + [f"scf.yield {', '.join(yields)} : {types}", "}"]
        names = [f"{result}#{k}" for k in range(len(shapes))]

        def step(env: Env) -> None:
            state = [env[v] for v in inits]
            for _ in range(trips):
                local = {**env, **dict(zip(inner, state, strict=True))}
                body.run(local)
                state = [local[v] for v in yields]
            env.update(zip(names, state, strict=True))

        scope.steps.append(step)
        scope.tiles.update(zip(names, shapes, strict=True))

    def branch(self, scope: Scope, depth: int) -> None:
        shapes = [self.random.choice(SHAPES) for _ in range(self.random.randint(1, 2))]
        result, arms, yields = self.name(), [], []
        for _ in range(2):
            arm = Scope(dict(scope.tiles))
            self.block(arm, self.random.randint(0, 3), depth + 1)
            yields.append([self.pick(arm, shape) for shape in shapes])
            arms.append(arm)
        types = ", ".join(spell(s) for s in shapes)
        scope.lines.append(f"{result}:{len(shapes)} = scf.if %flag -> ({types}) {{")
        scope.lines += arms[0].lines + [f"scf.yield {', '.join(yields[0])} : {types}", "} else {"]
        scope.lines += arms[1].lines + [f"scf.yield {', '.join(yields[1])} : {types}", "}"]
        names = [f"{result}#{k}" for k in range(len(shapes))]

        def step(env: Env) -> None:
            which = 0 if env["flag"] else 1
            local = dict(env)
            arms[which].run(local)
            env.update((name, local[v]) for name, v in zip(names, yields[which], strict=True))

        scope.steps.append(step)
        scope.tiles.update(zip(names, shapes, strict=True))

    # --- the module ---------------------------------------------------------------------------------------------

    def _module(self, top: Scope) -> str:
        """A kernel (flag, scratch, one pointer per input, one per output)."""
        pointers = ["%mem", *[f"%x{k}" for k in range(len(SHAPES))], *[f"%y{k}" for k in range(len(self.outputs))]]
        types = ", ".join(["i1", *["!tt.ptr<i32>"] * len(pointers)])
        lines = [f"%c{k} = arith.constant {k} : i32" for k in range(4)]
        for k, shape in enumerate(SHAPES):
            lines += self._addresses(f"%scratch{k}", "%mem", shape) + self._addresses(f"%xs{k}", f"%x{k}", shape)
            lines.append(f'%in{k} = "tt.load"(%xs{k}) : ({spell(shape, "!tt.ptr<i32>")}) -> {spell(shape)}')
        lines += top.lines
        for k, name in enumerate(self.outputs):
            shape = top.tiles[name]
            lines += self._addresses(f"%ys{k}", f"%y{k}", shape)
            lines.append(f'"tt.store"(%ys{k}, {name}) : ({spell(shape, "!tt.ptr<i32>")}, {spell(shape)}) -> ()')
        arguments = ", ".join(["%flag: i1", *[f"{p}: !tt.ptr<i32>" for p in pointers]])
        head = f'function_type = ({types}) -> (), sym_name = "random", sym_visibility = "public"'
        body = "\n".join([f"^bb0({arguments}):", *lines, '"tt.return"() : () -> ()'])
        return f'"tt.func"() <{{{head}}}> ({{\n{body}\n}}) : () -> ()\n'

    def _addresses(self, name: str, base: str, shape: Shape) -> list[str]:
        size = (shape[0] * shape[1],)
        flat, many, at = (f"{name}_{part}" for part in "abc")
        pointers = spell(size, "!tt.ptr<i32>")
        return [
            f'{flat} = "tt.make_range"() <{{start = 0 : i32, end = {size[0]} : i32}}> : () -> {spell(size)}',
            f'{many} = "tt.splat"({base}) : (!tt.ptr<i32>) -> {pointers}',
            f'{at} = "tt.addptr"({many}, {flat}) : ({pointers}, {spell(size)}) -> {pointers}',
            f'{name} = "tt.reshape"({at}) : ({pointers}) -> {spell(shape, "!tt.ptr<i32>")}',
        ]
