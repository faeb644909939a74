// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia{arch=80})' --verify-diagnostics --split-input-file
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd)' --verify-diagnostics --split-input-file

// What cannot be lowered, on either vendor; the messages point at the user's line.

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<i64>) -> (), sym_name = "multimem", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %ctx: !tt.ptr<i64>):
  // expected-error-re@+1 {{'ditron.multimem_ld_reduce' is not supported on {{cuda:80: NVLink multicast needs compute capability 90 \(Hopper\) or later|hip:gfx942: the links of AMD's GPUs have no multicast; use symm_at and a loop over the ranks}}}}
  %x = ditron.multimem_ld_reduce add %p : !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (tensor<64x!tt.ptr<f32>>, i32, !tt.ptr<i64>) -> (), sym_name = "untraceable", sym_visibility = "public"}> ({
^bb0(%ps: tensor<64x!tt.ptr<f32>>, %r: i32, %ctx: !tt.ptr<i64>):
  // expected-error@+1 {{expected pointers computed from one scalar pointer within this iteration, got a tensor of pointers that was loaded or is carried by a loop; apply symm_at to the scalar pointer, then add the offsets}}
  %q = ditron.symm_at %ps on %r : tensor<64x!tt.ptr<f32>>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = () -> (), sym_name = "helper", sym_visibility = "private"}> ({
  // expected-error@+1 {{expected a kernel, whose last argument is the group's context, got a function without the attribute 'ditron.kernel'; a helper must be inlined (no noinline=True)}}
  %r = ditron.rank
  "tt.return"() : () -> ()
}) : () -> ()

// -----

"tt.func"() <{function_type = (i32) -> (), sym_name = "no_context", sym_visibility = "public"}> ({
^bb0(%n: i32):
  // expected-error@+1 {{expected the kernel's last argument to be the group's context, a !tt.ptr<i64>}}
  %r = ditron.rank
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (!tt.ptr<i64>, i64, !tt.ptr<i64>) -> (), sym_name = "divergent", sym_visibility = "public"}> ({
^bb0(%sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>):
  %c0 = arith.constant 0 : i32
  %t = ditron.thread_id
  %first = arith.cmpi eq, %t, %c0 : i32
  scf.if %first {
    // expected-error@+1 {{'ditron.notify' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
    ditron.notify %sig set %v on %c0 : !tt.ptr<i64>
  }
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (!tt.ptr<i64>) -> (), sym_name = "turns_by_thread", sym_visibility = "public"}> ({
^bb0(%ctx: !tt.ptr<i64>):
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
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

// The value that decides is carried by a loop from one turn to the next.
"tt.func"() <{function_type = (i32, !tt.ptr<i64>) -> (), sym_name = "carried", sym_visibility = "public"}> ({
^bb0(%n: i32, %ctx: !tt.ptr<i64>):
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
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (!tt.ptr<i64>) -> (), sym_name = "early_return", sym_visibility = "public"}> ({
^bb0(%ctx: !tt.ptr<i64>):
  %c0 = arith.constant 0 : i32
  %t = ditron.thread_id
  %others = arith.cmpi sgt, %t, %c0 : i32
  ditron.sync_threads
  cf.cond_br %others, ^bb1, ^bb2
^bb1:
  "tt.return"() : () -> ()
^bb2:
  // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'cf.cond_br' depends on the thread; move it out, or make the condition uniform}}
  ditron.sync_threads
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

// All threads come back together, but with values that tell which way they took.
"tt.func"() <{function_type = (i1, !tt.ptr<i64>) -> (), sym_name = "together_again", sym_visibility = "public"}> ({
^bb0(%same: i1, %ctx: !tt.ptr<i64>):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %t = ditron.thread_id
  %others = arith.cmpi sgt, %t, %c0 : i32
  cf.cond_br %same, ^bb1, ^bb2
^bb1:
  ditron.sync_threads
  cf.cond_br %others, ^bb3(%c0 : i32), ^bb3(%c1 : i32)
^bb2:
  "tt.return"() : () -> ()
^bb3(%way: i32):
  ditron.sync_threads
  %one = arith.cmpi eq, %way, %c1 : i32
  scf.if %one {
    // expected-error@+1 {{'ditron.sync_threads' must be reached by every thread of the program, but the control flow is divergent: a 'scf.if' depends on the thread; move it out, or make the condition uniform}}
    ditron.sync_threads
  }
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (i32, !tt.ptr<i64>, i64, !tt.ptr<i64>) -> (), sym_name = "specialized", sym_visibility = "public"}> ({
^bb0(%n: i32, %sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-error@+1 {{'ditron.wait' synchronizes all threads of the program, but the kernel has a loop with warp_specialize=True, whose other warps do not reach it; remove warp_specialize=True}}
  %t = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  scf.for %i = %c0 to %n step %c1 : i32 {
    %x = "tt.load"(%sig) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<i64>) -> i64
  } {tt.warp_specialize}
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (!tt.ptr<i64>) -> (), sym_name = "two_results", sym_visibility = "public"}> ({
^bb0(%ctx: !tt.ptr<i64>):
  // expected-error@+1 {{expected at most one result, got 2; Triton's calls of device functions have one}}
  %a, %b = ditron.extern_call "f"() : () -> (i32, i32)
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()
