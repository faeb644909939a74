// RUN: ditron-opt --lower-to-sim %s | filecheck %s

// A location has bit 30 where a loop need not end by itself: 1073741824 and more.

// CHECK-LABEL: func.func @loops
tt.func public @loops(%p: !tt.ptr<i64>, %n: i32) {
  // CHECK-DAG: %[[HERE:.*]] = arith.constant 0 : i32
  // CHECK-DAG: %[[ENDLESS:.*]] = arith.constant 1073741824 : i32
  %zero = arith.constant 0 : i64
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %minus = arith.constant -1 : i32
  %c2 = arith.constant 2 : i32
  // No loop at all, and one that counts.
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  %a = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
  // CHECK: scf.for
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  scf.for %i = %c0 to %n step %c1 : i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
  }
  // What it reads decides.
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while : () -> () {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %again = arith.cmpi eq, %v, %zero : i64
    scf.condition(%again)
  } do {
    scf.yield
  }
  // What it reads, or a number that grows to what stays; also a loop in it.
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  // CHECK: scf.for
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  scf.while (%i = %c0) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %wide = arith.extsi %i : i32 to i64
    %limit = arith.extsi %n : i32 to i64
    %below = arith.cmpi sgt, %limit, %wide : i64
    %unset = arith.cmpi eq, %v, %zero : i64
    %again = arith.andi %unset, %below : i1
    scf.condition(%again) %i : i32
  } do {
  ^bb0(%i: i32):
    scf.for %j = %c0 to %n step %c1 : i32 {
      %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    }
    %programs = tt.get_num_programs x : i32
    %next = arith.addi %programs, %i : i32
    scf.yield %next : i32
  }
  // Downwards, both ways of writing it; a loop in it that waits.
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %n) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %above = arith.cmpi sge, %i, %c1 : i32
    scf.condition(%above) %i : i32
  } do {
  ^bb0(%i: i32):
    scf.while : () -> () {
      %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
      %again = arith.cmpi eq, %v, %zero : i64
      scf.condition(%again)
    } do {
      scf.yield
    }
    %next = arith.addi %i, %minus : i32
    scf.yield %next : i32
  }
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[HERE]])
  scf.while (%i = %n) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %above = arith.cmpi sge, %i, %c1 : i32
    scf.condition(%above) %i : i32
  } do {
  ^bb0(%i: i32):
    %next = arith.subi %i, %c2 : i32
    scf.yield %next : i32
  }
  // The wrong way; a limit that moves; a step that nobody knows; one condition or the other; a number that may stay.
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %n) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %above = arith.cmpi sge, %i, %c1 : i32
    scf.condition(%above) %i : i32
  } do {
  ^bb0(%i: i32):
    %next = arith.addi %i, %c2 : i32
    scf.yield %next : i32
  }
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %c0, %m = %n) : (i32, i32) -> (i32, i32) {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %below = arith.cmpi slt, %i, %m : i32
    scf.condition(%below) %i, %m : i32, i32
  } do {
  ^bb0(%i: i32, %m: i32):
    %next = arith.addi %i, %c2 : i32
    %more = arith.addi %m, %c2 : i32
    scf.yield %next, %more : i32, i32
  }
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %c0) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %below = arith.cmpi slt, %i, %c2 : i32
    scf.condition(%below) %i : i32
  } do {
  ^bb0(%i: i32):
    %next = arith.addi %i, %n : i32
    scf.yield %next : i32
  }
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %c0) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %below = arith.cmpi slt, %i, %n : i32
    %unset = arith.cmpi eq, %v, %zero : i64
    %again = arith.ori %unset, %below : i1
    scf.condition(%again) %i : i32
  } do {
  ^bb0(%i: i32):
    %next = arith.addi %i, %c1 : i32
    scf.yield %next : i32
  }
  // CHECK: scf.while
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  scf.while (%i = %c0) : (i32) -> i32 {
    %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
    %below = arith.cmpi slt, %i, %n : i32
    scf.condition(%below) %i : i32
  } do {
  ^bb0(%i: i32):
    %unset = arith.cmpi eq, %i, %n : i32
    %next = scf.if %unset -> (i32) {
      %one = arith.addi %i, %c1 : i32
      scf.yield %one : i32
    } else {
      scf.yield %i : i32
    }
    scf.yield %next : i32
  }
  tt.return
}

// A function that is called may be called in a loop, and branches may be one.
// CHECK-LABEL: func.func private @called
tt.func private @called(%p: !tt.ptr<i64>) {
  // CHECK: %[[ENDLESS:.*]] = arith.constant 1073741824 : i32
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
  tt.return
}

// CHECK-LABEL: func.func @branches
tt.func public @branches(%p: !tt.ptr<i64>) {
  // CHECK: %[[ENDLESS:.*]] = arith.constant 1073741824 : i32
  // CHECK: call @ditron_sim_ld({{.*}}, %[[ENDLESS]])
  %zero = arith.constant 0 : i64
  cf.br ^again
^again:
  %v = ditron.ld %p : !tt.ptr<i64> loc("k.py":1:1)
  %unset = arith.cmpi eq, %v, %zero : i64
  cf.cond_br %unset, ^again, ^end
^end:
  tt.return
}
