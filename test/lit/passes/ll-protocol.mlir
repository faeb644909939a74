// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol)' | filecheck %s --check-prefix=GONE
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol{protocol=ll128})' | filecheck %s --check-prefix=LL128
// RUN: ditron-opt %s --pass-pipeline='builtin.module(ll-protocol{protocol=simple})' | filecheck %s --check-prefix=SIMPLE

// No signal is left.
// GONE: module
// GONE-NOT: ditron.{{putmem|notify|wait %\w+.%(?!c0_i32)|signal|quiet}}

// The signal names the sender by its rank, the wait by the peer's: the message is unpacked to where the peer puts it.
// A place is 2 * packet_bytes(64) = 256 bytes, 32 words; the odd epoch's message is 16 words in.
// CHECK-LABEL: tt.func public @by_sender(
// LL128-LABEL: tt.func public @by_sender(
// SIMPLE-LABEL: tt.func public @by_sender(
// CHECK-SAME: %[[X:.*]]: !tt.ptr<bf16>, %[[BOX:.*]]: !tt.ptr<bf16>, %[[SIG:.*]]: !tt.ptr<i64>, %[[E:.*]]: i64, %[[PEER:.*]]: i32,
// CHECK-SAME: ditron.packets = [{index = 2 : i64, name = "{{.*}}", nbytes = 64 : i64, put = "{{.*}}ll-protocol.mlir:{{[0-9]+}}"}]
// SIMPLE-NOT: ditron.packets
tt.func public @by_sender(%x: !tt.ptr<bf16>, %box: !tt.ptr<bf16>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %n = arith.constant 32 : i32
  %one = arith.constant 1 : i32
  // CHECK: %[[RANK:.*]] = ditron.rank
  %rank = ditron.rank
  %first = arith.muli %rank, %n : i32
  %mine = tt.addptr %box, %first : !tt.ptr<bf16>, i32
  %place = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
  // CHECK: %[[PARITY:.*]] = arith.andi %[[E]], %{{.*}} : i64
  // CHECK: %[[C16:.*]] = arith.constant 16 : i64
  // CHECK: %[[HALF:.*]] = arith.muli %[[PARITY]], %[[C16]]
  // CHECK: %[[R64:.*]] = arith.extsi %[[RANK]] : i32 to i64
  // CHECK: %[[C32:.*]] = arith.constant 32 : i64
  // CHECK: %[[OF:.*]] = arith.muli %[[R64]], %[[C32]]
  // CHECK: %[[AT:.*]] = arith.addi %[[HALF]], %[[OF]]
  // CHECK: %[[PACKETS:.*]] = tt.addptr %[[SIG]], %[[AT]] : !tt.ptr<i64>, i64
  // CHECK: ditron.ll_put %[[PACKETS]], %[[X]], %{{.*}}, %[[E]] on %[[PEER]] : !tt.ptr<i64>, !tt.ptr<bf16>
  // LL128: ditron.ll_put {{.*}} protocol ll128
  // SIMPLE: ditron.putmem_signal
  ditron.putmem_signal %mine, %x, %bytes, %place set %epoch on %peer : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
  %theirs = tt.addptr %sig, %peer : !tt.ptr<i64>, i32
  // CHECK: %[[THEIRS:.*]] = arith.muli %[[PEER]], %{{.*}} : i32
  // CHECK: %[[DST:.*]] = tt.addptr %[[BOX]], %[[THEIRS]] :
  // CHECK: %[[P64:.*]] = arith.extsi %[[PEER]] : i32 to i64
  // CHECK: arith.muli %[[P64]]
  // CHECK: %[[TOKEN:.*]] = ditron.ll_get %[[DST]], %{{.*}}, %{{.*}}, %[[E]] : !tt.ptr<bf16>, !tt.ptr<i64>
  // LL128: ditron.ll_get {{.*}} protocol ll128
  // SIMPLE: ditron.wait
  %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  // CHECK: ditron.consume_token %[[BOX]], %[[TOKEN]]
  %ready = ditron.consume_token %box, %token : !tt.ptr<bf16>
  // Nothing is left that this could complete.
  // CHECK-NOT: ditron.quiet
  // SIMPLE: ditron.quiet
  ditron.quiet
  tt.return
// What launches have to give: memory with room for messages of 64 bytes.
}

// A put and a notify are one message; a wait for all ranks takes one from each. Its token is the last one's.
// CHECK-LABEL: tt.func public @from_everybody(
tt.func public @from_everybody(%x: !tt.ptr<f32>, %box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 128 : i64
  %n = arith.constant 32 : i32
  %rank = ditron.rank
  // CHECK: %[[RANKS:.*]] = ditron.num_ranks
  %ranks = ditron.num_ranks
  %first = arith.muli %rank, %n : i32
  %mine = tt.addptr %box, %first : !tt.ptr<f32>, i32
  // CHECK-NOT: ditron.putmem
  // CHECK: ditron.ll_put
  ditron.putmem %mine, %x, %bytes on %peer : !tt.ptr<f32>, !tt.ptr<f32>
  %place = tt.addptr %sig, %rank : !tt.ptr<i64>, i32
  ditron.notify %place set %epoch on %peer : !tt.ptr<i64>
  // CHECK: scf.for %[[R:.*]] = %{{.*}} to %[[RANKS]] step
  // CHECK: %[[FROM:.*]] = arith.muli %[[R]],
  // CHECK: %[[DST:.*]] = tt.addptr %{{.*}}, %[[FROM]] :
  // CHECK: ditron.ll_get %[[DST]],
  // CHECK: }
  // CHECK-NEXT: %[[ALL:.*]] = ditron.wait %{{.*}}[%c0_i32] ge %{{.*}} scope gpu semantic relaxed
  %token = ditron.wait %sig[%ranks] eq %epoch : !tt.ptr<i64>
  // CHECK: ditron.consume_token %{{.*}}, %[[ALL]]
  %ready = ditron.consume_token %box, %token : !tt.ptr<f32>
  tt.return
}

// Each program has signals of its own; the sender needs no name where the place is the same for all. Other signals stay, and with
// them what orders them.
// CHECK-LABEL: tt.func public @by_program(
tt.func public @by_program(%x: !tt.ptr<f32>, %box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %left: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %four = arith.constant 4 : i64
  %most = arith.constant 1000 : i32
  %pid = tt.get_program_id x : i32
  // At most 4000 bytes: more than ll-bytes.
  %count = arith.minsi %left, %most : i32
  %wide = arith.extsi %count : i32 to i64
  %bytes = arith.muli %wide, %four : i64
  %place = tt.addptr %sig, %pid : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_put {{.*}} protocol ll128
  ditron.putmem_signal %box, %x, %bytes, %place set %epoch on %peer nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: ditron.ll_get {{.*}} protocol ll128
  %seen = ditron.signal_wait_until %place ge %epoch : !tt.ptr<i64>
  tt.return
}

// What differs wherever ranks differ shows the sender: a stride that is not 0, a distance around the ring.
// CHECK-LABEL: tt.func public @around_the_ring(
tt.func public @around_the_ring(%x: !tt.ptr<f32>, %box: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %epoch: i64, %peer: i32, %step: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %bytes = arith.constant 64 : i64
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %rank = ditron.rank
  %ranks = ditron.num_ranks
  %mine = tt.addptr %box, %rank : !tt.ptr<f32>, i32
  %r1 = arith.addi %rank, %step : i32
  %r2 = arith.remsi %r1, %ranks : i32
  %r3 = arith.muli %r2, %two : i32
  %place = tt.addptr %sig, %r3 : !tt.ptr<i64>, i32
  // CHECK: ditron.ll_put
  ditron.putmem_signal %mine, %x, %bytes, %place set %epoch on %peer : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  // CHECK: scf.for %[[P:.*]] =
  scf.for %p = %zero to %ranks step %one : i32 {
    %p1 = arith.addi %p, %step : i32
    %p2 = arith.remsi %p1, %ranks : i32
    %p3 = arith.muli %p2, %two : i32
    %theirs = tt.addptr %sig, %p3 : !tt.ptr<i64>, i32
    // CHECK: %[[DST:.*]] = tt.addptr %{{.*}}, %[[P]] : !tt.ptr<f32>, i32
    // CHECK: ditron.ll_get %[[DST]],
    %token = ditron.wait %theirs[%one] ge %epoch : !tt.ptr<i64>
  }
  tt.return
}
