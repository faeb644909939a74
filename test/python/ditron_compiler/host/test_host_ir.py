"""Host programs built from Python: types, typed classes that take numbers and values, and a round trip."""

from __future__ import annotations

import pytest

from ditron_compiler import ir
from ditron_compiler.ir.dialects import arith, ditron


@pytest.fixture
def context():
    with ir.Context() as context, ir.Location.unknown():
        yield context


def test_buffer_types(context):
    bf16 = ir.BF16Type.get()
    kind = ditron.BufferType.get([None, 64], bf16, "symmetric")
    assert str(kind) == "!ditron.buffer<?x64xbf16, symmetric>" == str(ir.Type.parse(str(kind)))
    assert isinstance(kind, ir.ShapedType) and ir.Type.parse(str(kind)) == kind
    assert kind.shape == [ir.ShapedType.get_dynamic_size(), 64] and kind.element_type == bf16
    assert (kind.rank, kind.space, kind.is_symmetric, kind.has_static_shape) == (2, "symmetric", True, False)
    local = ditron.BufferType.get([], ir.F32Type.get())
    assert str(local) == "!ditron.buffer<f32>" and (local.space, local.is_symmetric) == ("local", False)
    assert ditron.BufferType.isinstance(local) and not ditron.BufferType.isinstance(bf16)


def test_wrong_buffer_types(context):
    with pytest.raises(ValueError, match="expected the memory space 'local' or 'symmetric', got 'shared'"):
        ditron.BufferType.get([1], ir.F32Type.get(), "shared")
    with pytest.raises(ir.MLIRError, match="expected the element type of a buffer to be an integer or a float"):
        ditron.BufferType.get([1], ir.IndexType.get())
    with pytest.raises(ir.MLIRError, match="expected a buffer's sizes to be 0 or more, got -3"):
        ditron.BufferType.get([-3], ir.F32Type.get())


def test_stream_and_event_types(context):
    assert str(ditron.stream_type()) == "!ditron.stream" and str(ditron.event_type()) == "!ditron.event"


def test_a_program_of_all_operations(context):
    i64, f32 = ir.IntegerType.get_signless(64), ir.F32Type.get()
    module = ir.Module.parse("""
      "tt.func"() <{sym_name = "k", function_type = (!tt.ptr<f32>, i64) -> ()}> ({
      ^bb0(%p: !tt.ptr<f32>, %n: i64):
        "tt.return"() : () -> ()
      }) : () -> ()""")
    with ir.InsertionPoint(module.body):
        program = ditron.ProgramOp("p", {"a": ditron.BufferType.get([None, 4], f32), "n": i64})
    assert list(program.arguments) == ["a", "n"]
    a, n = program.arguments.values()
    with ir.InsertionPoint(program.block):
        zero, one = arith.constant(f32, 0.0), arith.constant(i64, 1)
        x = ditron.AllocOp("x", [2, n, 4], f32, "symmetric")
        signals = ditron.AllocOp("signals", [8], i64, "symmetric", zeroed=True)
        part = ditron.SliceOp(x.result, [one, 0, 0], [1, n, 4], drop=1)
        rows, stride, epoch = ditron.DimOp(a, 0).result, ditron.StrideOp(a, 1).result, ditron.EpochOp().result
        main, copy = ditron.StreamOp().result, ditron.StreamOp(label="copy", index=one).result
        event = ditron.RecordOp(stream=main).result
        ditron.AwaitOp(event, stream=copy)
        push = ditron.RankCopyOp(a, part.result, one, stream=copy)
        pull = ditron.RankCopyOp(part.result, a, one, pull=True)
        ditron.CopyOp(a, part.result)
        ditron.FillOp(a, zero)
        write = ditron.SignalWriteOp(signals.result, [3], epoch, one, stream=copy, op="add")
        wait = ditron.SignalWaitOp(signals.result, [one], epoch, cmp="eq")
        ditron.StreamBarrierOp()
        options = ir.DictAttr.get({"num_warps": ir.IntegerAttr.get(i64, 4)})
        launch = ditron.LaunchOp("k", [rows, 2], [a, stride], options=options)
    module.operation.verify()
    assert (x.mixed_sizes, signals.mixed_sizes) == ([2, n, 4], [8]) and signals.zeroed
    assert (part.mixed_offsets, part.mixed_sizes) == ([one, 0, 0], [1, n, 4])
    assert str(part.result.type) == "!ditron.buffer<?x4xf32, symmetric>"
    assert (write.mixed_indices, wait.mixed_indices, launch.mixed_grid) == ([3], [one], [rows, 2])
    assert (push.stream, push.pull, pull.stream, pull.pull) == (copy, False, None, True)
    assert launch.options["num_warps"].value == 4 and launch.kernel.value == "k"
    text = str(module)
    assert str(ir.Module.parse(text)) == text
    for line in (
        '%x = ditron.alloc "x" [2, %n, 4] : <2x?x4xf32, symmetric>',
        "ditron.signal_write %signals[3] add %epoch on %c1_i64 stream %copy : <8xi64, symmetric>",
        "ditron.signal_wait %signals[%c1_i64] eq %epoch : <8xi64, symmetric>",
        "ditron.rank_copy %slice on %c1_i64 to %a : <?x4xf32, symmetric> to <?x4xf32>",
        "ditron.launch @k grid(%dim, 2) (%a, %stride) options {num_warps = 4 : i64} : (!ditron.buffer<?x4xf32>, i64)",
    ):
        assert line in text, f"{line}\nis not in\n{text}"


def test_numbers_and_values_are_told_apart(context):
    with ir.InsertionPoint(ir.Module.create().body):
        program = ditron.ProgramOp("p", {"n": ir.IntegerType.get_signless(64)})
    with ir.InsertionPoint(program.block):
        with pytest.raises(ir.MLIRError, match="expected 2 offsets and sizes"):
            x = ditron.AllocOp("x", [2, 2], ir.F32Type.get()).result
            ditron.SliceOp(x, [0], [1, 1]).operation.verify()
