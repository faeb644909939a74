// RUN: ditron-opt --lower-to-sim --verify-diagnostics --split-input-file %s

tt.func public @unknown(%x: f32) {
  // expected-error@+1 {{the simulator has no inline assembly but single instructions on f32, as tanh.approx.f32: write it with tl operations, here or in the branch of a tl.constexpr}}
  %y = tt.elementwise_inline_asm "x" {constraints = "=r", packed_element = 1 : i32, pure = true} %x : f32 -> f32
  tt.return
}

// -----

tt.func public @device_math(%x: f32) {
  // expected-error@+1 {{the simulator has no device function '__nv_nonesuchf'; write it with tl.math operations}}
  %y = tt.extern_elementwise %x {libname = "", libpath = "", pure = true, symbol = "__nv_nonesuchf"} : (f32) -> f32
  tt.return
}

// -----

tt.func public @extern(%p: !tt.ptr<i32>, %r: i32) {
  // expected-error@+1 {{the simulator cannot call the device function 'mine': guard the call, or write it in Triton}}
  %x = ditron.extern_call "mine"(%p, %r) from "lib" : (!tt.ptr<i32>, i32) -> i32
  tt.return
}

// -----

tt.func public @swizzle(%tile: i32, %size: i32, %block: i32) {
  // expected-error@+1 {{expected 'ditron.swizzle' to be gone by now: run lower-swizzle before lower-to-sim}}
  %x = "ditron.swizzle"(%tile, %size, %block) <{mode = #ditron.swizzle_mode<gather>}> : (i32, i32, i32) -> i32
  tt.return
}

// -----

// expected-error@+1 {{the simulator has no element type f8E4M3B11FNUZ}}
tt.func public @type(%p: !tt.ptr<f8E4M3B11FNUZ>) {
  tt.return
}

// -----

tt.func public @large() {
  %one = "arith.constant"() <{value = dense<1.0> : tensor<8192x8192xf32>}> : () -> tensor<8192x8192xf32>
  // expected-error@+1 {{the tiles of one program take more than 48 MiB in the simulator: use smaller tiles}}
  %x = tt.dot %one, %one, %one : tensor<8192x8192xf32> * tensor<8192x8192xf32> -> tensor<8192x8192xf32>
  tt.return
}

// -----

tt.func public @constant() {
  // expected-error@+1 {{the simulator has no lowering of a constant tile whose elements differ}}
  %x = "arith.constant"() <{value = dense<[1, 2]> : tensor<2xi32>}> : () -> tensor<2xi32>
  tt.return
}

// -----

tt.func public @atomic(%p: !tt.ptr<i8>, %x: i8) {
  // expected-error@+1 {{the simulator has no atomic access of type i8; use a 32- or 64-bit type}}
  %y = tt.atomic_rmw add, acq_rel, gpu, %p, %x : (!tt.ptr<i8>, i8) -> i8
  tt.return
}

// -----

// expected-error@+1 {{the simulator has no kernel arguments that are tiles: pass a pointer, and load from it}}
tt.func public @tile_argument(%x: tensor<8xf32>) {
  tt.return
}

// -----

// expected-error@+1 {{the simulator has no function arguments that are tiles; drop noinline}}
tt.func private @tile_argument_of_a_helper(%x: tensor<8xf32>) {
  tt.return
}

// -----

// As on GPUs.
tt.func public @warp_specialized(%p: !tt.ptr<i64>, %n: i32) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    // expected-error@+1 {{'ditron.wait' synchronizes all threads of the program, but the kernel has a loop with warp_specialize=True, whose other warps do not reach it; remove warp_specialize=True}}
    %t = ditron.wait %p[%c1] ge %v : !tt.ptr<i64>
    scf.yield
  } {tt.warp_specialize}
  tt.return
}
