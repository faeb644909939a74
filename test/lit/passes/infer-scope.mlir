// RUN: ditron-opt %s --infer-scope | filecheck %s
// RUN: ditron-opt %s --infer-scope --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-DAG: 7  infer-scope: scopes narrowed
// COUNT-DAG: 9  infer-scope: scopes widened

// A notify reaches as far as its rank may be.
// CHECK-LABEL: tt.func @ranks(
// CHECK-COUNT-2: ditron.notify {{.*}} scope gpu
// CHECK-COUNT-2: ditron.notify {{.*}} on %{{[0-9]+}} : !tt.ptr<i64>
// CHECK-COUNT-3: ditron.notify {{.*}} scope world
tt.func @ranks(%sig: !tt.ptr<i64>, %v: i64, %any: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %n = ditron.num_ranks
  %local = ditron.local_rank
  %locals = ditron.num_local_ranks
  %node = ditron.node
  %first = arith.muli %locals, %node : i32
  %t = ditron.wait %sig[%c1] ge %v scope world : !tt.ptr<i64>
  ditron.notify %sig set %v on %rank : !tt.ptr<i64>
  %me = arith.addi %first, %local : i32
  ditron.notify %sig set %v on %me scope world : !tt.ptr<i64>
  %beside = arith.addi %local, %c1 : i32
  %neighbour = arith.remsi %beside, %locals : i32
  %here = arith.addi %neighbour, %first : i32
  ditron.notify %sig set %v on %here scope world : !tt.ptr<i64>
  scf.for %i = %c0 to %locals step %c1 : i32 {
    %start = arith.subi %rank, %local : i32
    %each = arith.addi %start, %i : i32
    ditron.notify %sig set %v on %each : !tt.ptr<i64>
  }
  %next = arith.addi %rank, %c1 : i32
  %right = arith.remsi %next, %n : i32
  ditron.notify %sig set %v on %right : !tt.ptr<i64>
  ditron.notify %sig set %v on %any : !tt.ptr<i64>
  %out = arith.addi %first, %locals : i32
  ditron.notify %sig set %v on %out : !tt.ptr<i64>
  tt.return
}

// What a condition says of the rank holds in its branch.
// CHECK-LABEL: tt.func @conditions(
// CHECK: ditron.notify {{.*}} on %arg2 : !tt.ptr<i64>
// CHECK: ditron.notify {{.*}} scope world
// CHECK: ditron.notify {{.*}} scope world
// CHECK: ditron.notify {{.*}} on %arg2 : !tt.ptr<i64>
// CHECK: ditron.notify {{.*}} on %arg2 : !tt.ptr<i64>
// CHECK: ditron.notify {{.*}} scope world
tt.func @conditions(%sig: !tt.ptr<i64>, %v: i64, %r: i32, %too: i1) {
  %rank = ditron.rank
  %locals = ditron.num_local_ranks
  %node = ditron.node
  %its = arith.divsi %r, %locals : i32
  %near = arith.cmpi eq, %its, %node : i32
  %both = arith.andi %near, %too : i1
  scf.if %both {
    ditron.notify %sig set %v on %r scope world : !tt.ptr<i64>
  } else {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  %either = arith.ori %near, %too : i1
  scf.if %either {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  %other = arith.cmpi ne, %r, %rank : i32
  scf.if %other {
  } else {
    // Nobody here waits for it: a stream may, which is not of this GPU's programs.
    ditron.notify %sig set %v on %r scope world : !tt.ptr<i64>
  }
  %far = arith.cmpi ne, %node, %its : i32
  scf.if %far {
  } else {
    ditron.notify %sig set %v on %r scope world : !tt.ptr<i64>
  }
  // Of another number nothing follows.
  %alone = arith.cmpi eq, %locals, %rank : i32
  scf.if %alone {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// A wait hears what the kernel itself sends; it is never narrowed, since others may send too.
// CHECK-LABEL: tt.func @waits(
// CHECK: ditron.wait %arg0[%{{.*}}] ge %{{.*}} scope world
// CHECK: ditron.wait %arg1[%{{.*}}] ge %{{.*}} scope world
// CHECK: ditron.wait %arg2[%{{.*}}] ge %arg3 : !tt.ptr<i64>
// CHECK: ditron.wait %arg2[%{{.*}}] ge %{{.*}} scope gpu
tt.func @waits(%sig: !tt.ptr<i64>, %other: !tt.ptr<i64>, %third: !tt.ptr<i64>, %v: i64, %n: i32) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  %sub = tt.addptr %sig, %n : !tt.ptr<i64>, i32
  ditron.signal_op %sub set %v on %n : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  %b = ditron.wait %other[%c1] ge %v scope world : !tt.ptr<i64>
  ditron.notify %third set %v on %rank scope gpu : !tt.ptr<i64>
  %c = ditron.wait %third[%c1] ge %v : !tt.ptr<i64>
  %d = ditron.wait %third[%c1] ge %v scope gpu : !tt.ptr<i64>
  tt.return
}

// The author knows where a rank is that comes from outside; a cell of this rank is nobody else's.
// CHECK-LABEL: tt.func @as_written(
// CHECK: ditron.notify {{.*}} scope gpu
// CHECK: ditron.st %arg1, %{{.*}} : !tt.ptr<i32>
tt.func @as_written(%sig: !tt.ptr<i64>, %cell: !tt.ptr<i32>, %v: i64, %n: i32) {
  ditron.notify %sig set %v on %n scope gpu : !tt.ptr<i64>
  ditron.st %cell, %n : !tt.ptr<i32>
  tt.return
}

// Another rank waits for what this one tells itself, may look at it, or a function that is called may have it looked at.
// CHECK-LABEL: tt.func @pulled(
// CHECK: ditron.notify %arg0 set %arg3 on %{{[0-9a-z]+}} : !tt.ptr<i64>
// CHECK: ditron.wait %{{.*}} ge %arg3 : !tt.ptr<i64>
// CHECK: ditron.wait %arg0{{.*}} ge %arg3 : !tt.ptr<i64>
// CHECK: ditron.notify %arg1 set %arg3 on %{{[0-9a-z]+}} : !tt.ptr<i64>
// CHECK: ditron.notify %arg2 set %arg3 on %{{[0-9a-z]+}} : !tt.ptr<i64>
tt.func @pulled(%sig: !tt.ptr<i64>, %seen: !tt.ptr<i64>, %given: !tt.ptr<i64>, %v: i64, %left: i32) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank scope gpu : !tt.ptr<i64>
  %its = ditron.symm_at %sig on %left : !tt.ptr<i64>
  %a = ditron.wait %its[%c1] ge %v scope gpu : !tt.ptr<i64>
  %b = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  ditron.notify %seen set %v on %rank : !tt.ptr<i64>
  %there = ditron.symm_at %seen on %left : !tt.ptr<i64>
  %x = ditron.ld %there scope node semantic acquire : !tt.ptr<i64>
  %c = ditron.wait %seen[%c1] ge %v : !tt.ptr<i64>
  ditron.notify %given set %v on %rank : !tt.ptr<i64>
  %d = ditron.wait %given[%c1] ge %v : !tt.ptr<i64>
  tt.call @take(%given) : (!tt.ptr<i64>) -> ()
  tt.return
}
tt.func private @take(%sig: !tt.ptr<i64>) {
  tt.return
}

// A NIC that reads what is put to another node is not a program of this GPU; a put within the node is one's stores.
// CHECK-LABEL: tt.func @read_by_a_nic(
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
tt.func @read_by_a_nic(%sig: !tt.ptr<i64>, %data: !tt.ptr<f32>, %v: i64, %n: i32) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  ditron.putmem %data, %data, %v on %n : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: tt.func @read_by_a_program(
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} scope gpu
tt.func @read_by_a_program(%sig: !tt.ptr<i64>, %data: !tt.ptr<f32>, %v: i64) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  ditron.putmem %data, %data, %v on %rank : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

// So may code in another language, NVLink's multicast, and a wait through a loaded pointer, which may be another rank's.
// CHECK-LABEL: tt.func @looked_at_otherwise(
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
// CHECK: ditron.notify %arg1 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
tt.func @looked_at_otherwise(%sig: !tt.ptr<i64>, %given: !tt.ptr<i64>, %v: i64) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank : !tt.ptr<i64>
  %mc = ditron.multicast_ptr %sig : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  ditron.notify %given set %v on %rank : !tt.ptr<i64>
  %x = tt.elementwise_inline_asm "a" {constraints = "", packed_element = 1 : i32, pure = false} %given : !tt.ptr<i64> -> i32
  %b = ditron.wait %given[%c1] ge %v : !tt.ptr<i64>
  tt.return
}
// CHECK-LABEL: tt.func @loaded_pointer(
// CHECK: ditron.notify %arg0 set %arg1 on %{{[0-9a-z]+}} : !tt.ptr<i64>
tt.func @loaded_pointer(%sig: !tt.ptr<i64>, %v: i64) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  %its = tt.int_to_ptr %v : i64 -> !tt.ptr<i64>
  %b = ditron.wait %its[%c1] ge %v : !tt.ptr<i64>
  tt.return
}
