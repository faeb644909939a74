// RUN: ditron-opt %s --canonicalize --cse --eliminate-copies --canonicalize --cse | filecheck %s
// RUN: ditron-opt %s --canonicalize --cse --eliminate-copies --mlir-pass-statistics 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-DAG: 5{{.*}}copies whose source is read in place
// COUNT-DAG: 5{{.*}}copies whose destination is written directly
// COUNT-DAG: 1{{.*}}first iterations peeled

tt.func @gemm(%a: !tt.ptr<f32>, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}

// AG+GEMM by chunks. Redundant: the copy that makes %a row-major, and that of the own shard to the others. The first
// iteration of the loop, which reads the own shard, is peeled and reads %a, if that is row-major.
// CHECK-LABEL: ditron.program @ag_gemm(
// CHECK-NOT:  ditron.copy
// CHECK:      %[[OWN:.*]] = ditron.slice %all
// CHECK:      %[[S0:.*]] = ditron.stride %a[0]
// CHECK:      %[[E0:.*]] = arith.cmpi eq, %[[S0]], %c4_i64
// CHECK:      %[[S1:.*]] = ditron.stride %a[1]
// CHECK:      %[[E1:.*]] = arith.cmpi eq, %[[S1]], %c1_i64
// CHECK:      %[[SAME:.*]] = arith.andi %[[E0]], %[[E1]]
// CHECK:      scf.if %[[SAME]] {
// CHECK-NEXT: } else {
// CHECK-NEXT:   ditron.copy %a to %[[OWN]] {ditron.strides_differ}
// CHECK-NEXT: }
// CHECK:      scf.for
// CHECK:        ditron.rank_copy %a to %[[OWN]] on
// CHECK:      ditron.signal_wait %arrived
// CHECK:      scf.if %[[SAME]] {
// CHECK-NEXT:   ditron.launch @gemm grid(8) (%a, %c)
// CHECK-NEXT: } else {
// CHECK-NEXT:   ditron.launch @gemm grid(8) (%{{.*}}, %c)
// CHECK:      scf.for %{{.*}} = %c1_i64 to
// CHECK:        %[[CHUNK:.*]] = ditron.slice %all
// CHECK:        ditron.launch @gemm grid(8) (%[[CHUNK]], %c)
ditron.program @ag_gemm(%a: !ditron.buffer<8x4xf32>, %c: !ditron.buffer<8x4xf32>) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %rows = arith.constant 8 : i64
  %epoch = ditron.epoch
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %m = arith.muli %ranks, %rows : i64
  %all = ditron.alloc "all" [%m, 4] : <?x4xf32, symmetric>
  %arrived = ditron.alloc "arrived" [%ranks] zeroed : <?xi64, symmetric>
  %a_row_major = ditron.alloc "a_row_major" [8, 4] : <8x4xf32>
  ditron.copy %a to %a_row_major : <8x4xf32> to <8x4xf32>
  %first = arith.muli %rank, %rows : i64
  %own = ditron.slice %all[%first, 0] [8, 4] : <?x4xf32, symmetric> to <8x4xf32, symmetric>
  ditron.copy %a_row_major to %own : <8x4xf32> to <8x4xf32, symmetric>
  ditron.signal_write %arrived[%rank] set %epoch on %rank : <?xi64, symmetric>
  scf.for %step = %one to %ranks step %one : i64 {
    %down = arith.subi %rank, %step : i64
    %up = arith.addi %down, %ranks : i64
    %peer = arith.remsi %up, %ranks : i64
    ditron.rank_copy %own to %own on %peer : <8x4xf32, symmetric> to <8x4xf32, symmetric>
    ditron.signal_write %arrived[%rank] set %epoch on %peer : <?xi64, symmetric>
  }
  scf.for %step = %zero to %ranks step %one : i64 {
    %up = arith.addi %rank, %step : i64
    %source = arith.remsi %up, %ranks : i64
    %row = arith.muli %source, %rows : i64
    %chunk = ditron.slice %all[%row, 0] [8, 4] : <?x4xf32, symmetric> to <8x4xf32, symmetric>
    ditron.signal_wait %arrived[%source] ge %epoch : <?xi64, symmetric>
    ditron.launch @gemm grid(8) (%chunk, %c) : (!ditron.buffer<8x4xf32, symmetric>, !ditron.buffer<8x4xf32>)
  }
}

// GEMM+RS by chunks. Redundant: the staging buffer before each push, the copy of the own chunk to the inbox, and the
// copy of the result out of scratch memory.
// CHECK-LABEL: ditron.program @gemm_rs(
// CHECK-NOT:  ditron.copy
// CHECK:      %[[PART:.*]] = ditron.alloc "part"
// CHECK:      %[[OWN:.*]] = ditron.slice %inbox
// CHECK:      scf.for
// CHECK:        ditron.launch @gemm grid(8) (%a, %part)
// CHECK:        ditron.rank_copy %part to %[[OWN]] on
// CHECK:      ditron.launch @gemm grid(8) (%a, %[[OWN]])
// CHECK:      ditron.launch @gemm grid(8) (%inbox, %out)
// CHECK-NEXT: } else {
// CHECK-NEXT:   ditron.launch @gemm grid(8) (%inbox, %sum)
// CHECK-NEXT:   ditron.copy %sum to %out {ditron.strides_differ}
ditron.program @gemm_rs(%a: !ditron.buffer<8x4xf32>, %out: !ditron.buffer<8x4xf32>) {
  %one = arith.constant 1 : i64
  %rows = arith.constant 8 : i64
  %epoch = ditron.epoch
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %inbox = ditron.alloc "inbox" [%ranks, 8, 4] : <?x8x4xf32, symmetric>
  %arrived = ditron.alloc "arrived" [%ranks] zeroed : <?xi64, symmetric>
  %staging = ditron.alloc "staging" [8, 4] : <8x4xf32, symmetric>
  %part = ditron.alloc "part" [8, 4] : <8x4xf32>
  %own_part = ditron.alloc "own_part" [8, 4] : <8x4xf32>
  %sum = ditron.alloc "sum" [8, 4] : <8x4xf32>
  %mine = ditron.slice %inbox[%rank, 0, 0] [1, 8, 4] : <?x8x4xf32, symmetric> to <8x4xf32, symmetric>
  scf.for %step = %one to %ranks step %one : i64 {
    %up = arith.addi %rank, %step : i64
    %owner = arith.remsi %up, %ranks : i64
    ditron.launch @gemm grid(8) (%a, %part) : (!ditron.buffer<8x4xf32>, !ditron.buffer<8x4xf32>)
    ditron.copy %part to %staging : <8x4xf32> to <8x4xf32, symmetric>
    ditron.rank_copy %staging to %mine on %owner : <8x4xf32, symmetric> to <8x4xf32, symmetric>
    ditron.signal_write %arrived[%rank] set %epoch on %owner : <?xi64, symmetric>
  }
  ditron.launch @gemm grid(8) (%a, %own_part) : (!ditron.buffer<8x4xf32>, !ditron.buffer<8x4xf32>)
  ditron.copy %own_part to %mine : <8x4xf32> to <8x4xf32, symmetric>
  scf.for %step = %one to %ranks step %one : i64 {
    %up = arith.addi %rank, %step : i64
    %source = arith.remsi %up, %ranks : i64
    ditron.signal_wait %arrived[%source] ge %epoch : <?xi64, symmetric>
  }
  ditron.launch @gemm grid(8) (%inbox, %sum) : (!ditron.buffer<?x8x4xf32, symmetric>, !ditron.buffer<8x4xf32>)
  ditron.copy %sum to %out : <8x4xf32> to <8x4xf32>
}

// On two streams, the next iteration would overwrite what is being pushed: the product is written to the staging buffer.
// CHECK-LABEL: ditron.program @pushed_from_another_stream(
// CHECK-NOT: ditron.copy
// CHECK: ditron.launch @gemm grid(8) (%a, %staging)
// CHECK: ditron.rank_copy %staging to
ditron.program @pushed_from_another_stream(%a: !ditron.buffer<8x4xf32>, %n: i64) {
  %zero = arith.constant 0 : i64
  %copy = ditron.stream "copy"
  %part = ditron.alloc "part" [8, 4] : <8x4xf32>
  %staging = ditron.alloc "staging" [8, 4] : <8x4xf32>
  %inbox = ditron.alloc "inbox" [8, 4] : <8x4xf32, symmetric>
  scf.for %step = %zero to %n step %n : i64 {
    ditron.launch @gemm grid(8) (%a, %part) : (!ditron.buffer<8x4xf32>, !ditron.buffer<8x4xf32>)
    ditron.copy %part to %staging : <8x4xf32> to <8x4xf32>
    %ready = ditron.record
    ditron.await %ready stream %copy
    ditron.rank_copy %staging to %inbox on %step stream %copy : <8x4xf32> to <8x4xf32, symmetric>
  }
}

// A part of the destination is that part of the source.
// CHECK-LABEL: ditron.program @parts(
// CHECK-NOT: ditron.copy %a
// CHECK: %[[HALF:.*]] = ditron.slice %a[4, 0] [4, 4]
// CHECK: ditron.copy %[[HALF]] to %c
ditron.program @parts(%a: !ditron.buffer<8x4xf32>, %c: !ditron.buffer<4x4xf32>) {
  %x = ditron.alloc "x" [16, 4] : <16x4xf32>
  %to = ditron.slice %x[2, 0] [8, 4] : <16x4xf32> to <8x4xf32>
  ditron.copy %a to %to : <8x4xf32> to <8x4xf32>
  %half = ditron.slice %x[6, 0] [4, 4] : <16x4xf32> to <4x4xf32>
  ditron.copy %half to %c : <4x4xf32> to <4x4xf32>
}

// CHECK-LABEL: ditron.program @nobody_reads(
// CHECK-NOT: ditron.copy
ditron.program @nobody_reads(%a: !ditron.buffer<4xf32>) {
  %x = ditron.alloc "x" [4] : <4xf32>
  ditron.copy %a to %x : <4xf32> to <4xf32>
}

// A pull or a fill writes to the destination directly.
// CHECK-LABEL: ditron.program @writers(
// CHECK: ditron.rank_copy %s on %peer to %c
// CHECK: ditron.fill %d, %z
// CHECK-NOT: ditron.copy
ditron.program @writers(%c: !ditron.buffer<4xf32>, %d: !ditron.buffer<4xf32>, %z: f32, %peer: i64) {
  %s = ditron.alloc "s" [4] : <4xf32, symmetric>
  %x = ditron.alloc "x" [4] : <4xf32>
  %y = ditron.alloc "y" [4] : <4xf32>
  ditron.rank_copy %s on %peer to %x : <4xf32, symmetric> to <4xf32>
  ditron.copy %x to %c : <4xf32> to <4xf32>
  ditron.fill %y, %z : <4xf32>
  ditron.copy %y to %d : <4xf32> to <4xf32>
}
