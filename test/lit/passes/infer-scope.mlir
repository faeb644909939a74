// RUN: ditron-opt %s --infer-scope | filecheck %s
// RUN: ditron-opt %s --infer-scope --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT-DAG: 6  infer-scope: scopes narrowed
// COUNT-DAG: 9  infer-scope: scopes widened

// A notify reaches as far as its rank may be.
// CHECK-LABEL: tt.func @ranks(
// CHECK-COUNT-4: ditron.notify {{.*}} on %{{[a-z0-9]+}} : !tt.ptr<i64>
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

// Another rank waits for what this one tells itself, or may look at it.
// CHECK-LABEL: tt.func @pulled(
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
// CHECK: ditron.wait %{{.*}} ge %arg2 : !tt.ptr<i64>
// CHECK: ditron.wait %arg0{{.*}} ge %arg2 : !tt.ptr<i64>
// CHECK: ditron.notify %arg1 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
tt.func @pulled(%sig: !tt.ptr<i64>, %seen: !tt.ptr<i64>, %v: i64, %left: i32) {
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
  tt.return
}

// A stream may wait for it, too, and a NIC or a copy engine read what is behind it: they are not of this GPU's programs.
// CHECK-LABEL: tt.func @own_signal(
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} : !tt.ptr<i64>
// CHECK: ditron.notify %arg0 set %arg2 on %{{[0-9a-z]+}} scope gpu
tt.func @own_signal(%sig: !tt.ptr<i64>, %data: !tt.ptr<f32>, %v: i64) {
  %c1 = arith.constant 1 : i32
  %rank = ditron.rank
  ditron.notify %sig set %v on %rank scope world : !tt.ptr<i64>
  %a = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  ditron.notify %sig set %v on %rank scope gpu : !tt.ptr<i64>
  tt.return
}
