// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia)' --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' --verify-diagnostics | filecheck %s

// A loop that waits is not run ahead by Triton's software pipeliner; a loop inside it is, as ever.

// CHECK-LABEL: tt.func public @wait_around_a_loop(
// CHECK: scf.for %[[OUTER:.*]] =
// CHECK: symbol = "ditron_wait"
// CHECK: scf.for %[[INNER:.*]] =
// CHECK: {tt.num_stages = 3 : i32}
// CHECK: {tt.num_stages = 1 : i32}
tt.func public @wait_around_a_loop(%n: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{flatten=True is ignored: the loop contains 'ditron.wait', which flattening would move ahead of the iterations before it, and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %c1 : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    } {tt.num_stages = 3 : i32}
    ditron.notify %sig add %v on %i : !tt.ptr<i64>
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nobody waits for an iteration of a loop that publishes nothing: it may be flattened, and pipelined with its wait.
// CHECK-LABEL: tt.func public @flattened_around_a_wait(
// CHECK: symbol = "ditron_wait"
// CHECK: {tt.flatten, tt.num_stages = 3 : i32}
tt.func public @flattened_around_a_wait(%n: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    %me = ditron.rank
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    %p = ditron.consume_token %sig, %t : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %p : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Triton executes the else branch of an scf.if in the iterations beyond the last one that a pipelined loop begins: a
// wait is in the then branch.
// CHECK-LABEL: tt.func public @wait_in_an_else_branch(
// CHECK: scf.for
// CHECK: scf.for
// CHECK: %[[OTHER:.*]] = arith.xori %{{.*}}, %true
// CHECK: scf.if %[[OTHER]] -> (!tt.ptr<i64>) {
// CHECK: symbol = "ditron_wait"
// CHECK: } else {
// CHECK-NEXT: scf.yield %arg1
// CHECK: {tt.flatten, tt.num_stages = 3 : i32}
tt.func public @wait_in_an_else_branch(%n: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.for %k = %c0 to %n step %c1 : i32 {
      %p = scf.if %own -> (!tt.ptr<i64>) {
        scf.yield %sig : !tt.ptr<i64>
      } else {
        %first = arith.cmpi eq, %k, %c0 : i32
        scf.if %first {
          %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
        }
        %q = tt.addptr %sig, %c1 : !tt.ptr<i64>, i32
        scf.yield %q : !tt.ptr<i64>
      }
      %x = tt.load %p : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// The same with a load in the then branch, which must not be executed beyond the last iteration either.
// CHECK-LABEL: tt.func public @wait_or_load(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @wait_or_load(%n: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{flatten=True is ignored: 'ditron.wait' is in the else branch of an 'if' whose other branch has effects}}
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.for %k = %c0 to %n step %c1 : i32 {
      scf.if %own {
        %x = tt.load %sig : !tt.ptr<i64>
      } else {
        %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
      }
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Before the nested loop Triton's own scf.if is around it.
// CHECK-LABEL: tt.func public @else_branch_before_the_loop(
// CHECK-NOT: arith.xori
// CHECK: {tt.flatten, tt.num_stages = 3 : i32}
tt.func public @else_branch_before_the_loop(%n: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.if %own {
    } else {
      %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    }
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// A wait after the nested loop is not moved ahead of anything, so the loop may publish and be flattened.
// CHECK-LABEL: tt.func public @wait_in_the_epilogue(
// CHECK: symbol = "ditron_wait"
// CHECK: {tt.flatten, tt.num_stages = 3 : i32}
tt.func public @wait_in_the_epilogue(%n: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    scf.if %own {
      %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    } else {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Unless the next iteration depends on it.
// CHECK-LABEL: tt.func public @wait_for_the_next_iteration(
// CHECK-NOT: tt.flatten
// CHECK: {tt.num_stages = 1 : i32}
tt.func public @wait_for_the_next_iteration(%n: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{flatten=True is ignored: the loop contains 'ditron.wait'}}
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%before = %sig) -> (!tt.ptr<i64>) : i32 {
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %before : !tt.ptr<i64>
    }
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    %p = ditron.consume_token %sig, %t : !tt.ptr<i64>
    ditron.notify %sig add %v on %i : !tt.ptr<i64>
    scf.yield %p : !tt.ptr<i64>
  } {tt.flatten}
  tt.return
}

// An atomic of Triton's publishes, too.
// CHECK-LABEL: tt.func public @atomic_beside_a_wait(
// CHECK-NOT: tt.flatten
// CHECK: {tt.num_stages = 1 : i32}
tt.func public @atomic_beside_a_wait(%n: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  %true = arith.constant true
  // expected-warning@+1 {{and 'tt.atomic_rmw', which publishes them}}
  scf.for %i = %c0 to %n step %c1 : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    %old = tt.atomic_rmw add, acq_rel, sys, %sig, %v, %true : (!tt.ptr<i64>, i64, i1) -> i64
  } {tt.flatten}
  tt.return
}

// A notify needs nothing of the kind: loads may go ahead of it.
// CHECK-LABEL: tt.func public @notify_in_a_loop(
// CHECK-NOT: tt.num_stages
// CHECK: tt.return
tt.func public @notify_in_a_loop(%n: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    ditron.notify %sig add %v on %i : !tt.ptr<i64>
  }
  tt.return
}

// CHECK-LABEL: tt.func public @wait_in_the_loop_that_multiplies(
// CHECK: {tt.num_stages = 1 : i32}
tt.func public @wait_in_the_loop_that_multiplies(%n: i32, %a: tensor<64x64xbf16>, %zero: tensor<64x64xf32>, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-remark@+1 {{the loop is not software-pipelined, because it contains 'ditron.wait'; have that in a loop around it, once for several steps}}
  %sum = scf.for %k = %c0 to %n step %c1 iter_args(%acc = %zero) -> (tensor<64x64xf32>) : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    %next = tt.dot %a, %a, %acc : tensor<64x64xbf16> * tensor<64x64xbf16> -> tensor<64x64xf32>
    scf.yield %next : tensor<64x64xf32>
  }
  tt.return
}

// A loop may be flattened if its last iteration alone publishes, behind the nested loops.
// CHECK-LABEL: tt.func public @published_by_the_last_iteration(
// CHECK: symbol = "ditron_wait"
// CHECK: symbol = "ditron_notify"
// CHECK: {tt.flatten, tt.num_stages = 3 : i32}
tt.func public @published_by_the_last_iteration(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    %both = arith.andi %last, %own : i1
    scf.if %both {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Not if all other iterations publish.
// CHECK-LABEL: tt.func public @in_all_but_the_last(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @in_all_but_the_last(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %last {
    } else {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nor if the condition is of another bound, or of another step.
// CHECK-LABEL: tt.func public @below_another_bound(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @below_another_bound(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %m : i32
    scf.if %last {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %m : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %last {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nor if another condition is enough.
// CHECK-LABEL: tt.func public @under_either_condition(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @under_either_condition(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    %either = arith.ori %last, %own : i1
    scf.if %either {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nor in an else branch, which Triton executes beyond the last iteration too.
// CHECK-LABEL: tt.func public @in_an_else_branch(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @in_an_else_branch(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %own {
    } else {
      scf.if %last {
        ditron.notify %sig add %v on %i : !tt.ptr<i64>
      }
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nor before a nested loop: flattening would move it ahead of earlier iterations, and a wait behind it ahead of it.
// CHECK-LABEL: tt.func public @before_the_nested_loop(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @before_the_nested_loop(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %last {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %last {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
    scf.for %k = %c0 to %n step %c1 : i32 {
      %y = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// Nor if the loop compares unsigned numbers, and the condition signed ones.
// CHECK-LABEL: tt.func public @of_unsigned_numbers(
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @of_unsigned_numbers(%n: i32, %m: i32, %step: i32, %sig: !tt.ptr<i64>, %own: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  // expected-warning@+1 {{and 'ditron.notify', which publishes them}}
  scf.for unsigned %i = %c0 to %n step %step : i32 {
    %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %x = tt.load %sig : !tt.ptr<i64>
    }
    %following = arith.addi %i, %step : i32
    %last = arith.cmpi sge, %following, %n : i32
    scf.if %last {
      ditron.notify %sig add %v on %i : !tt.ptr<i64>
    }
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}

// A loop that copies between ranks is not pipelined: loads of what a get brings would be in front of it.
// CHECK-LABEL: tt.func public @a_get_in_a_loop(
// CHECK: {tt.num_stages = 1 : i32}
// CHECK: {tt.num_stages = 1 : i32}
// CHECK-NOT: tt.flatten
// CHECK: tt.return
tt.func public @a_get_in_a_loop(%n: i32, %box: !tt.ptr<i64>, %x: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %bytes = arith.constant 8 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    ditron.getmem %box, %x, %bytes on %c1 : !tt.ptr<i64>, !tt.ptr<i64>
    %y = tt.load %box : !tt.ptr<i64>
  } {tt.num_stages = 3 : i32}
  scf.for %i = %c0 to %n step %c1 : i32 {
    ditron.putmem %box, %x, %bytes on %i : !tt.ptr<i64>, !tt.ptr<i64>
    %y = tt.load %box : !tt.ptr<i64>
  } {tt.num_stages = 3 : i32}
  // expected-warning@+1 {{flatten=True is ignored: the loop contains 'ditron.getmem', and flattening would move loads of what it brings ahead of it}}
  scf.for %i = %c0 to %n step %c1 : i32 {
    ditron.getmem %box, %x, %bytes on %c1 : !tt.ptr<i64>, !tt.ptr<i64>
    scf.for %k = %c0 to %n step %c1 : i32 {
      %y = tt.load %box : !tt.ptr<i64>
    } {tt.num_stages = 3 : i32}
  } {tt.flatten, tt.num_stages = 3 : i32}
  tt.return
}
