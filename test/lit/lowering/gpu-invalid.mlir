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
    // expected-error@+1 {{'ditron.notify' must be reached by every thread of the program, got a 'scf.if' that depends on the thread; take it out, or use a value that is the same in all threads}}
    ditron.notify %sig set %v on %c0 : !tt.ptr<i64>
  }
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

// -----

"tt.func"() <{function_type = (i32, !tt.ptr<i64>, i64, !tt.ptr<i64>) -> (), sym_name = "specialized", sym_visibility = "public"}> ({
^bb0(%n: i32, %sig: !tt.ptr<i64>, %v: i64, %ctx: !tt.ptr<i64>):
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  // expected-error@+1 {{'ditron.wait' synchronises all threads of the program, but the kernel has a loop with warp_specialize=True, whose other warps would never come; take warp_specialize away}}
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
