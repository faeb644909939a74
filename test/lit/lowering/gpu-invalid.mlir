// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{arch=80})' --verify-diagnostics --split-input-file
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' --verify-diagnostics --split-input-file

// What cannot be lowered, on either vendor; the messages point at the user's line.

tt.func public @multimem(%p: !tt.ptr<f32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  // expected-error-re@+1 {{'ditron.multimem_ld_reduce' is not supported on {{cuda:80: NVLink multicast needs compute capability 90 \(Hopper\) or later|hip:gfx942: the links of AMD's GPUs have no multicast; use symm_at and a loop over the ranks}}}}
  %x = ditron.multimem_ld_reduce add %p : !tt.ptr<f32>
  tt.return
}

// -----

tt.func public @untraceable(%ps: tensor<64x!tt.ptr<f32>>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  // expected-error@+1 {{expected pointers computed from one scalar pointer within this iteration, got a tensor of pointers that was loaded or is carried by a loop; apply symm_at to the scalar pointer, then add the offsets}}
  %q = ditron.symm_at %ps on %r : tensor<64x!tt.ptr<f32>>
  tt.return
}

// -----

tt.func public @drawn(%sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  // expected-error@+1 {{expected a condition: only the simulator draws one, in timing-only mode}}
  %c = ditron.expect 5.000000e-01
  tt.store %sig, %v, %c : !tt.ptr<i64>
  tt.return
}

// -----

tt.func private @helper() {
  // expected-error@+1 {{expected a kernel, whose last argument is the group's context, got a function without the attribute 'ditron.kernel'; a helper must be inlined (no noinline=True)}}
  %r = ditron.rank
  tt.return
}

// -----

tt.func public @no_context(%n: i32) attributes {ditron.kernel} {
  // expected-error@+1 {{expected the kernel's last argument to be the group's context, a !tt.ptr<i64>}}
  %r = ditron.rank
  tt.return
}

// -----

tt.func public @divergent(%sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %t = ditron.thread_id
  %first = arith.cmpi eq, %t, %c0 : i32
  scf.if %first {
    // expected-error@+1 {{'ditron.notify' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
    ditron.notify %sig set %v on %c0 : !tt.ptr<i64>
  }
  tt.return
}

// -----

tt.func public @turns_by_thread(%ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %t = ditron.thread_id
  %n = scf.while (%i = %c0) : (i32) -> i32 {
    %more = arith.cmpi slt, %i, %t : i32
    scf.condition(%more) %i : i32
  } do {
  ^bb0(%i: i32):
    // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'scf.while' depends on the thread; move it out, or make the condition uniform}}
    ditron.sync_threads
    %next = arith.addi %i, %c1 : i32
    scf.yield %next : i32
  }
  // How many turns there were differs too.
  %some = arith.cmpi sgt, %n, %c1 : i32
  scf.if %some {
    // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
    ditron.sync_threads
  }
  tt.return
}

// -----

// The value that decides is carried by a loop from one turn to the next.
tt.func public @carried(%n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %t = ditron.thread_id
  %last = scf.for %i = %c0 to %n step %c1 iter_args(%before = %c0) -> i32 : i32 {
    %some = arith.cmpi sgt, %before, %c0 : i32
    scf.if %some {
      // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
      ditron.sync_threads
    }
    scf.yield %t : i32
  }
  tt.return
}

// -----

tt.func public @early_return(%ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %t = ditron.thread_id
  %others = arith.cmpi sgt, %t, %c0 : i32
  ditron.sync_threads
  cf.cond_br %others, ^bb1, ^bb2
^bb1:
  tt.return
^bb2:
  // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'cf.cond_br' depends on the thread; move it out, or make the condition uniform}}
  ditron.sync_threads
  tt.return
}

// -----

// All threads come back together, but with values that tell which way they took.
tt.func public @together_again(%same: i1, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %t = ditron.thread_id
  %others = arith.cmpi sgt, %t, %c0 : i32
  cf.cond_br %same, ^bb1, ^bb2
^bb1:
  ditron.sync_threads
  cf.cond_br %others, ^bb3(%c0 : i32), ^bb3(%c1 : i32)
^bb2:
  tt.return
^bb3(%way: i32):
  ditron.sync_threads
  %one = arith.cmpi eq, %way, %c1 : i32
  scf.if %one {
    // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
    ditron.sync_threads
  }
  tt.return
}

// -----

tt.func public @specialized(%n: i32, %sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-error@+1 {{'ditron.wait' synchronizes all threads of the program, but the kernel has a loop with warp_specialize=True, whose other warps do not reach it; remove warp_specialize=True}}
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  scf.for %i = %c0 to %n step %c1 : i32 {
    %x = tt.load %sig : !tt.ptr<i64>
  } {tt.warp_specialize}
  tt.return
}

// -----

tt.func public @two_results(%ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  // expected-error@+1 {{expected at most one result, got 2; Triton's calls of device functions have one}}
  %a, %b = ditron.extern_call "f"() : () -> (i32, i32)
  tt.return
}
