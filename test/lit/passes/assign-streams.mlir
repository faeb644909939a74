// RUN: ditron-opt %s --canonicalize --cse --assign-streams | filecheck %s
// RUN: ditron-opt %s --canonicalize --cse --assign-streams=streams=2 | filecheck %s --check-prefix=TWO
// RUN: ditron-opt %s --canonicalize --cse --assign-streams=adjacent=true | filecheck %s --check-prefix=ADJACENT

tt.func @read(%a: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.return
}
tt.func @write(%a: !tt.ptr<f32>) {
  %x = arith.constant 1.0 : f32
  tt.store %a, %x : !tt.ptr<f32>
  tt.return
}

// A decomposed all-gather and its consumer: no dependence crosses streams, so that there is no event.
// CHECK-LABEL: ditron.program @all_at_once(
// CHECK: %copy = ditron.stream "copy"
// CHECK-NOT: ditron.record
// CHECK: ditron.copy %a to %{{.*}} : <8xf32>
// CHECK: ditron.signal_write %arrived[%{{.*}}] set %epoch on %{{.*}} {ditron.with_copy}
// CHECK: scf.for
// CHECK:   ditron.rank_copy %a to %{{.*}} on %{{.*}} stream %copy
// CHECK:   ditron.signal_write %arrived[%{{.*}}] set %epoch on %{{.*}} stream %copy
// CHECK: scf.for
// CHECK:   ditron.signal_wait %arrived[%{{.*}}] ge %epoch : <?xi64, symmetric>
// CHECK:   ditron.launch @read grid(1) (%{{.*}}) : (!ditron.buffer<8xf32, symmetric>)
// CHECK-NOT: ditron.record
// Each iteration pushes to another peer: iterations are distributed over the streams.
// TWO-LABEL: ditron.program @all_at_once(
// TWO: scf.for %[[I:.*]] = %c1_i64
// TWO:   %[[NUMBER:.*]] = arith.remsi %[[I]], %c2_i64
// TWO:   %[[STREAM:.*]] = ditron.stream "copy"[%[[NUMBER]]]
// TWO:   ditron.rank_copy %a to %{{.*}} on %{{.*}} stream %[[STREAM]]
// TWO:   ditron.signal_write %{{.*}} stream %[[STREAM]]
ditron.program @all_at_once(%a: !ditron.buffer<8xf32>) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %rows = arith.constant 8 : i64
  %epoch = ditron.epoch
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %m = arith.muli %ranks, %rows : i64
  %all = ditron.alloc "all" [%m] : <?xf32, symmetric>
  %arrived = ditron.alloc "arrived" [%ranks] zeroed : <?xi64, symmetric>
  %first = arith.muli %rank, %rows : i64
  %own = ditron.slice %all[%first] [8] : <?xf32, symmetric> to <8xf32, symmetric>
  ditron.copy %a to %own : <8xf32> to <8xf32, symmetric>
  ditron.signal_write %arrived[%rank] set %epoch on %rank {ditron.with_copy} : <?xi64, symmetric>
  scf.for %step = %one to %ranks step %one : i64 {
    %down = arith.subi %rank, %step : i64
    %up = arith.addi %down, %ranks : i64
    %peer = arith.remsi %up, %ranks : i64
    ditron.rank_copy %a to %own on %peer : <8xf32> to <8xf32, symmetric>
    ditron.signal_write %arrived[%rank] set %epoch on %peer {ditron.with_copy} : <?xi64, symmetric>
  }
  scf.for %step = %zero to %ranks step %one : i64 {
    %up = arith.addi %rank, %step : i64
    %source = arith.remsi %up, %ranks : i64
    %row = arith.muli %source, %rows : i64
    %chunk = ditron.slice %all[%row] [8] : <?xf32, symmetric> to <8xf32, symmetric>
    ditron.signal_wait %arrived[%source] ge %epoch : <?xi64, symmetric>
    ditron.launch @read grid(1) (%chunk) : (!ditron.buffer<8xf32, symmetric>)
  }
}

// The copy stream awaits the write of what it pushes; the program's stream awaits the push before it overwrites that.
// One event each, although there are two copies.
// CHECK-LABEL: ditron.program @both_directions(
// CHECK:      ditron.launch @write grid(1) (%x)
// CHECK-NEXT: %[[WRITTEN:.*]] = ditron.record{{$}}
// CHECK-NEXT: ditron.await %[[WRITTEN]] stream %copy
// CHECK-NEXT: ditron.rank_copy %x to %s on %peer stream %copy
// CHECK-NEXT: ditron.rank_copy %x to %t on %peer stream %copy
// CHECK-NEXT: %[[SENT:.*]] = ditron.record stream %copy
// CHECK-NEXT: ditron.await %[[SENT]]{{$}}
// CHECK-NEXT: ditron.launch @write grid(1) (%x)
// CHECK-NEXT: }
ditron.program @both_directions(%peer: i64) {
  %x = ditron.alloc "x" [8] : <8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  %t = ditron.alloc "t" [8] : <8xf32, symmetric>
  ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
  ditron.rank_copy %x to %s on %peer : <8xf32> to <8xf32, symmetric>
  ditron.rank_copy %x to %t on %peer : <8xf32> to <8xf32, symmetric>
  ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
}

// Disjoint parts, and two readers, have no dependence.
// CHECK-LABEL: ditron.program @independent(
// CHECK-NOT: ditron.record
// CHECK: }
ditron.program @independent(%peer: i64) {
  %x = ditron.alloc "x" [16] : <16xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  %low = ditron.slice %x[0] [8] : <16xf32> to <8xf32>
  %high = ditron.slice %x[8] [8] : <16xf32> to <8xf32>
  ditron.launch @write grid(1) (%low) : (!ditron.buffer<8xf32>)
  ditron.rank_copy %high to %s on %peer : <8xf32> to <8xf32, symmetric>
  ditron.launch @read grid(1) (%high) : (!ditron.buffer<8xf32>)
}

// An iteration overwrites what the one before pushes: it awaits the copies of earlier iterations.
// CHECK-LABEL: ditron.program @next_iteration(
// CHECK:      scf.for
// CHECK-NEXT:   %[[PUSHED:.*]] = ditron.record stream %copy
// CHECK-NEXT:   ditron.await %[[PUSHED]]{{$}}
// CHECK-NEXT:   ditron.launch @write grid(1) (%x)
// CHECK-NEXT:   %[[WRITTEN:.*]] = ditron.record{{$}}
// CHECK-NEXT:   ditron.await %[[WRITTEN]] stream %copy
// CHECK-NEXT:   ditron.rank_copy %x to %s on %{{.*}} stream %copy
// CHECK-NEXT: }
ditron.program @next_iteration(%n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %x = ditron.alloc "x" [8] : <8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  scf.for %i = %zero to %n step %one : i64 {
    ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
    ditron.rank_copy %x to %s on %i : <8xf32> to <8xf32, symmetric>
  }
}

// A buffer for each iteration: the dependence is within an iteration.
// CHECK-LABEL: ditron.program @a_buffer_for_each_iteration(
// CHECK:      scf.for
// CHECK-NEXT:   ditron.slice
// CHECK-NEXT:   ditron.launch @write
// CHECK-NEXT:   %[[WRITTEN:.*]] = ditron.record{{$}}
// CHECK-NEXT:   ditron.await %[[WRITTEN]] stream %copy
// CHECK-NEXT:   ditron.rank_copy
// CHECK-NEXT: }
ditron.program @a_buffer_for_each_iteration(%n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %x = ditron.alloc "x" [%n, 8] : <?x8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  scf.for %i = %zero to %n step %one : i64 {
    %part = ditron.slice %x[%i, 0] [1, 8] : <?x8xf32> to <8xf32>
    ditron.launch @write grid(1) (%part) : (!ditron.buffer<8xf32>)
    ditron.rank_copy %part to %s on %i : <8xf32> to <8xf32, symmetric>
  }
}

// A signal may publish anything and comes after everything; a wait comes before all accesses of symmetric memory.
// CHECK-LABEL: ditron.program @signals_of_the_author(
// CHECK:      ditron.signal_wait %sig[0] ge %epoch :
// CHECK-NEXT: %[[WAITED:.*]] = ditron.record{{$}}
// CHECK-NEXT: ditron.launch @write grid(1) (%x)
// CHECK-NEXT: ditron.await %[[WAITED]] stream %copy
// CHECK-NEXT: ditron.rank_copy %y to %s on %peer stream %copy
// CHECK-NEXT: %[[SENT:.*]] = ditron.record stream %copy
// CHECK-NEXT: ditron.launch @write grid(1) (%x)
// CHECK-NEXT: ditron.await %[[SENT]]{{$}}
// CHECK-NEXT: ditron.signal_write %sig[0] set %epoch on %peer :
ditron.program @signals_of_the_author(%peer: i64) {
  %epoch = ditron.epoch
  %x = ditron.alloc "x" [8] : <8xf32>
  %y = ditron.alloc "y" [8] : <8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  %sig = ditron.alloc "sig" [1] zeroed : <1xi64, symmetric>
  ditron.signal_wait %sig[0] ge %epoch : <1xi64, symmetric>
  ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
  ditron.rank_copy %y to %s on %peer : <8xf32> to <8xf32, symmetric>
  ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
  ditron.signal_write %sig[0] set %epoch on %peer : <1xi64, symmetric>
}

// An operation for which the author chose a stream keeps it, and is ordered with everything.
// CHECK-LABEL: ditron.program @the_authors_streams(
// CHECK: ditron.rank_copy %x to %s on %peer stream %side
// CHECK-NOT: stream %copy
// CHECK: }
ditron.program @the_authors_streams(%peer: i64) {
  %side = ditron.stream "side"
  %x = ditron.alloc "x" [8] : <8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  ditron.launch @write grid(1) (%x) : (!ditron.buffer<8xf32>)
  ditron.rank_copy %x to %s on %peer stream %side : <8xf32> to <8xf32, symmetric>
}

// With `adjacent`, a signal right after a copy orders that copy only, and not the launch of an earlier iteration.
// CHECK-LABEL: ditron.program @adjacent(
// CHECK:      scf.for
// CHECK:        ditron.record{{$}}
// CHECK:        ditron.signal_write {{.*}} stream %copy
// ADJACENT-LABEL: ditron.program @adjacent(
// ADJACENT:      scf.for
// ADJACENT-NOT:  ditron.record
// ADJACENT:      ditron.signal_write {{.*}} stream %copy
// ADJACENT-NOT:  ditron.record
// ADJACENT:      }
ditron.program @adjacent(%y: !ditron.buffer<8xf32>, %n: i64) {
  %epoch = ditron.epoch
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %x = ditron.alloc "x" [8] : <8xf32>
  %s = ditron.alloc "s" [8] : <8xf32, symmetric>
  %sig = ditron.alloc "sig" [%n] zeroed : <?xi64, symmetric>
  scf.for %i = %zero to %n step %one : i64 {
    ditron.rank_copy %x to %s on %i : <8xf32> to <8xf32, symmetric>
    ditron.signal_write %sig[%i] set %epoch on %i : <?xi64, symmetric>
    ditron.launch @write grid(1) (%y) : (!ditron.buffer<8xf32>)
  }
}

// The slice at i // 2 differs between iterations, though it is one SSA value: the copy awaits the earlier reads.
// CHECK-LABEL: ditron.program @every_second_iteration(
// CHECK: scf.for
// CHECK:   %[[READ:.*]] = ditron.record{{$}}
// CHECK:   ditron.await %[[READ]] stream %copy
// CHECK:   ditron.rank_copy %a on %{{.*}} to %{{.*}} stream %copy
// CHECK:   ditron.launch @read
ditron.program @every_second_iteration(%a: !ditron.buffer<8xf32, symmetric>, %n: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  %rows = arith.constant 8 : i64
  %peer = arith.constant 0 : i64
  %m = arith.muli %n, %rows : i64
  %all = ditron.alloc "all" [%m] : <?xf32>
  scf.for %i = %zero to %n step %one : i64 {
    %half = arith.divsi %i, %two : i64
    %at = arith.muli %half, %rows : i64
    %behind = arith.addi %at, %rows : i64
    %here = ditron.slice %all[%at] [8] : <?xf32> to <8xf32>
    %next = ditron.slice %all[%behind] [8] : <?xf32> to <8xf32>
    ditron.rank_copy %a on %peer to %here : <8xf32, symmetric> to <8xf32>
    ditron.launch @read grid(%one) (%next) : (!ditron.buffer<8xf32>)
  }
}
