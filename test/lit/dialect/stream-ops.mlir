// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | ditron-opt | filecheck %s
// RUN: ditron-opt %s --mlir-print-op-generic | filecheck %s --check-prefix=GENERIC

tt.func public @gemm(%a: !tt.ptr<bf16>, %n: i32, %alpha: f32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  tt.return
}
tt.func public @plain() {
  tt.return
}

// CHECK-LABEL: ditron.program @order
ditron.program @order() {
  %main = ditron.stream
  %copy = ditron.stream "copy"
  // CHECK: %event = ditron.record stream %main
  %event = ditron.record stream %main
  // CHECK: ditron.await %event stream %copy
  ditron.await %event stream %copy
  // CHECK: %event_0 = ditron.record{{$}}
  %unassigned = ditron.record
  // CHECK: ditron.await %event_0{{$}}
  ditron.await %unassigned
  // CHECK: ditron.stream_barrier{{$}}
  ditron.stream_barrier
  // CHECK: ditron.stream_barrier stream %copy
  ditron.stream_barrier stream %copy
}

// CHECK-LABEL: ditron.program @copies
ditron.program @copies(%a: !ditron.buffer<?x?xbf16>, %s: !ditron.buffer<?x?xbf16, symmetric>, %peer: i64, %zero: bf16) {
  %copy = ditron.stream "copy"
  // CHECK: ditron.rank_copy %a to %s on %peer : <?x?xbf16> to <?x?xbf16, symmetric>
  // GENERIC: "ditron.rank_copy"({{.*}}) : (!ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16, symmetric>, i64) -> ()
  ditron.rank_copy %a to %s on %peer : !ditron.buffer<?x?xbf16> to !ditron.buffer<?x?xbf16, symmetric>
  // CHECK: ditron.rank_copy %s to %s on %peer stream %copy
  ditron.rank_copy %s to %s on %peer stream %copy : <?x?xbf16, symmetric> to <?x?xbf16, symmetric>
  // CHECK: ditron.rank_copy %s on %peer to %a stream %copy : <?x?xbf16, symmetric> to <?x?xbf16>
  // GENERIC: "ditron.rank_copy"({{.*}}) <{pull}>
  ditron.rank_copy %s on %peer to %a stream %copy : <?x?xbf16, symmetric> to <?x?xbf16>
  // CHECK: ditron.copy %a to %s : <?x?xbf16> to <?x?xbf16, symmetric>
  ditron.copy %a to %s : <?x?xbf16> to <?x?xbf16, symmetric>
  // CHECK: ditron.copy %s to %a stream %copy : <?x?xbf16, symmetric> to <?x?xbf16>
  ditron.copy %s to %a stream %copy : <?x?xbf16, symmetric> to <?x?xbf16>
  // CHECK: ditron.fill %a, %zero : <?x?xbf16>
  ditron.fill %a, %zero : <?x?xbf16>
  // CHECK: ditron.fill %a, %zero stream %copy : <?x?xbf16>
  ditron.fill %a, %zero stream %copy : <?x?xbf16>
  // CHECK: ditron.call "mm" reads(%a, %s : !ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16, symmetric>) writes(%a : !ditron.buffer<?x?xbf16>) stream %copy
  ditron.call "mm" reads(%a, %s : !ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16, symmetric>) writes(%a : !ditron.buffer<?x?xbf16>) stream %copy
  // CHECK: ditron.call "zero" reads() writes(%a : !ditron.buffer<?x?xbf16>){{$}}
  ditron.call "zero" reads() writes(%a : !ditron.buffer<?x?xbf16>)
}

// CHECK-LABEL: ditron.program @signals
ditron.program @signals(%sig: !ditron.buffer<?xi64, symmetric>, %grid: !ditron.buffer<4x?xi64, symmetric>, %i: i64, %v: i64) {
  %copy = ditron.stream "copy"
  // CHECK: ditron.signal_write %sig[%i] set %v on %i stream %copy : <?xi64, symmetric>
  // GENERIC: "ditron.signal_write"({{.*}}) <{op = #ditron.signal_op<set>, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>, static_indices = array<i64: -9223372036854775808>}>
  ditron.signal_write %sig[%i] set %v on %i stream %copy : <?xi64, symmetric>
  // CHECK: ditron.signal_write %grid[3, %i] add %v on %i : <4x?xi64, symmetric>
  ditron.signal_write %grid[3, %i] add %v on %i : <4x?xi64, symmetric>
  // CHECK: ditron.signal_wait %sig[0] ge %v stream %copy : <?xi64, symmetric>
  ditron.signal_wait %sig[0] ge %v stream %copy : <?xi64, symmetric>
  // CHECK: ditron.signal_wait %sig[%i] eq %v : <?xi64, symmetric>
  // GENERIC: "ditron.signal_wait"({{.*}}) <{cmp = #ditron.cmp<eq>
  ditron.signal_wait %sig[%i] eq %v : <?xi64, symmetric>
}

// The context, a kernel's last parameter, is not given.
// CHECK-LABEL: ditron.program @launches
ditron.program @launches(%a: !ditron.buffer<?x?xbf16>, %s: !ditron.buffer<8xbf16, symmetric>, %n: i32, %alpha: f32, %x: i64) {
  %main = ditron.stream
  // CHECK: ditron.launch @gemm grid(%x, 1) (%a, %n, %alpha) stream %main options {num_warps = 8 : i64} : (!ditron.buffer<?x?xbf16>, i32, f32)
  // GENERIC: "ditron.launch"({{.*}}) <{kernel = @gemm, operandSegmentSizes = array<i32: 1, 3, 1>, options = {num_warps = 8 : i64}, static_grid = array<i64: -9223372036854775808, 1>}>
  ditron.launch @gemm grid(%x, 1) (%a, %n, %alpha) stream %main options {num_warps = 8 : i64} : (!ditron.buffer<?x?xbf16>, i32, f32)
  // CHECK: ditron.launch @gemm grid(4) (%s, %n, %alpha) : (!ditron.buffer<8xbf16, symmetric>, i32, f32)
  ditron.launch @gemm grid(4) (%s, %n, %alpha) : (!ditron.buffer<8xbf16, symmetric>, i32, f32)
  // CHECK: ditron.launch @plain grid(1, %x, 1) ()
  ditron.launch @plain grid(1, %x, 1) ()
}

// CHECK-LABEL: ditron.program @collectives
ditron.program @collectives(%a: !ditron.buffer<?x?xbf16>, %all: !ditron.buffer<?x?xbf16, symmetric>, %sig: !ditron.buffer<?xi64, symmetric>) {
  %epoch = ditron.epoch
  %copy = ditron.stream "copy"
  // CHECK: ditron.all_gather %a into %all signal %sig at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
  ditron.all_gather %a into %all signal %sig at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
  // CHECK: ditron.all_gather %a into %all signal %sig at %epoch stream %copy
  ditron.all_gather %a into %all signal %sig at %epoch stream %copy : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
}
