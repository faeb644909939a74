"""What is nested too deep for MLIR's recursive parser is an error, and does not overflow the stack."""

from __future__ import annotations

import os
import subprocess
import sys

import paths
import pytest

from ditron_compiler import ir

DEEP = {
    "types": "func.func private @f({}i32{})".format("tuple<" * 20_000, ">" * 20_000),
    "functions": "func.func private @f({}{} -> ())".format("(" * 20_000, ")" * 20_000),
    "arrays": "module attributes {{a = {}1{}}} {{}}".format("[" * 20_000, "]" * 20_000),
    "dictionaries": "module attributes {{a = {}1{}}} {{}}".format("{a = " * 20_000, "}" * 20_000),
    "regions": "module {" * 20_000 + "}" * 20_000,
    "generic regions": '"x.y"() ({' * 20_000 + "}) : () -> ()" * 20_000,
    "affine expressions": "#m = affine_map<(d0) -> ({}d0{})>".format("(" * 20_000, ")" * 20_000),
    "locations": 'module {{}} loc({}"a"{})'.format("callsite(" * 20_000, ' at "b")' * 20_000),
}


@pytest.mark.parametrize("kind", DEEP)
def test_opt(kind):
    result = subprocess.run(
        [sys.executable, "-m", "ditron_compiler.tools.opt", "--allow-unregistered-dialect"],
        input="\n" + DEEP[kind], env={**os.environ, "PYTHONPATH": str(paths.ROOT)}, text=True, capture_output=True,
        timeout=120,
    )  # fmt: skip
    assert result.returncode == 1 and not result.stdout
    assert result.stderr.startswith("<stdin>:2:") and "error: brackets are nested more than 256 deep" in result.stderr


def test_from_python():
    with ir.Context():
        with pytest.raises(ir.MLIRError, match="nested more than 256 deep"):
            ir.Module.parse(DEEP["types"])
        with pytest.raises(ir.MLIRError, match="nested more than 256 deep"):
            ir.Type.parse("tuple<" * 300 + "i32" + ">" * 300)
        with pytest.raises(ir.MLIRError, match="nested more than 256 deep"):
            ir.Attribute.parse("[" * 300 + "]" * 300)


def test_what_is_less_deep_is_read():
    text = "tuple<" * 250 + "i32" + ">" * 250
    # What looks like brackets is in strings, comments, arrows and comparisons.
    many = "\n".join(
        f'"x.y"() {{a = "<<(([[{{{{\\"<<", b = affine_set<(d0) : (d0 >= {n})>}} : () -> () // (((<<<'
        for n in range(300)
    )
    with ir.Context() as context:
        context.allow_unregistered_dialects = True
        assert str(ir.Type.parse(text)) == text
        assert len(list(ir.Module.parse(many).body.operations)) == 300
        deep = ir.Module.parse('"x.y"() ({' * 120 + "}) : () -> ()" * 120)
        assert str(deep).count("x.y") == 120
