// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

// Arguments keep their names.
// CHECK: ditron.program @arguments(%a: !ditron.buffer<?x128xbf16>, %flags: !ditron.buffer<?xi64, symmetric>, %n: i32, %alpha: f32) {
// GENERIC: "ditron.program"() <{arg_names = ["a", "flags", "n", "alpha"], sym_name = "arguments"}>
ditron.program @arguments(%a: !ditron.buffer<?x128xbf16>, %flags: !ditron.buffer<?xi64, symmetric>, %n: i32, %alpha: f32) {
}

// CHECK: ditron.program @attributes() attributes {note = "kept"} {
ditron.program @attributes() attributes {note = "kept"} {
}

// CHECK-LABEL: @numbers
ditron.program @numbers(%a: !ditron.buffer<?x?xbf16>) {
  // CHECK: %epoch = ditron.epoch
  %epoch = ditron.epoch
  // CHECK: %dim = ditron.dim %a[0] : <?x?xbf16>
  // GENERIC: "ditron.dim"({{.*}}) <{dimension = 0 : i64}> : (!ditron.buffer<?x?xbf16>) -> i64
  %rows = ditron.dim %a[0] : !ditron.buffer<?x?xbf16>
  // CHECK: %stride = ditron.stride %a[1] : <?x?xbf16>
  %stride = ditron.stride %a[1] : <?x?xbf16>
  // The identity operations of kernels are those of programs.
  // CHECK: ditron.rank
  // CHECK: ditron.num_ranks
  // CHECK: ditron.local_rank
  // CHECK: ditron.num_local_ranks
  // CHECK: ditron.node
  %0 = ditron.rank
  %1 = ditron.num_ranks
  %2 = ditron.local_rank
  %3 = ditron.num_local_ranks
  %4 = ditron.node
}

// CHECK-LABEL: @memory
ditron.program @memory(%m: i64, %parity: i64) {
  // CHECK: %workspace = ditron.alloc "workspace" [2, %m, 64] : <2x?x64xbf16, symmetric>
  // GENERIC: "ditron.alloc"({{.*}}) <{label = "workspace", static_sizes = array<i64: 2, -9223372036854775808, 64>}>
  %workspace = ditron.alloc "workspace" [2, %m, 64] : !ditron.buffer<2x?x64xbf16, symmetric>
  // CHECK: %arrived = ditron.alloc "arrived" [8] zeroed : <?xi64, symmetric>
  %arrived = ditron.alloc "arrived" [8] zeroed : !ditron.buffer<?xi64, symmetric>
  // CHECK: %scalar = ditron.alloc "scalar" [] : <f32>
  %scalar = ditron.alloc "scalar" [] : !ditron.buffer<f32>
  // CHECK: %slice = ditron.slice %workspace[%parity, 0, 0] [1, %m, 64] : <2x?x64xbf16, symmetric> to <?x64xbf16, symmetric>
  // GENERIC: "ditron.slice"({{.*}}) <{operandSegmentSizes = array<i32: 1, 1, 1>, static_offsets = array<i64: -9223372036854775808, 0, 0>, static_sizes = array<i64: 1, -9223372036854775808, 64>}>
  %half = ditron.slice %workspace[%parity, 0, 0] [1, %m, 64] : !ditron.buffer<2x?x64xbf16, symmetric> to !ditron.buffer<?x64xbf16, symmetric>
  // CHECK: ditron.slice %arrived[3] [1] : <?xi64, symmetric> to <i64, symmetric>
  %one = ditron.slice %arrived[3] [1] : !ditron.buffer<?xi64, symmetric> to !ditron.buffer<i64, symmetric>
}

// CHECK-LABEL: @streams
ditron.program @streams(%i: i64) {
  // CHECK: %main = ditron.stream{{$}}
  // GENERIC: "ditron.stream"() <{label = ""}> : () -> !ditron.stream
  %0 = ditron.stream
  // CHECK: %copy = ditron.stream "copy"{{$}}
  %1 = ditron.stream "copy"
  // CHECK: %ring = ditron.stream "ring"[%i]
  // GENERIC: "ditron.stream"({{.*}}) <{label = "ring"}> : (i64) -> !ditron.stream
  %2 = ditron.stream "ring"[%i]
}

// CHECK-LABEL: @control_flow
ditron.program @control_flow(%n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  // CHECK: scf.for
  scf.for %i = %zero to %n step %one : i64 {
    %first = arith.cmpi eq, %i, %zero : i64
    // CHECK: scf.if
    scf.if %first {
      // CHECK: ditron.stream_barrier
      ditron.stream_barrier
    }
  }
}
