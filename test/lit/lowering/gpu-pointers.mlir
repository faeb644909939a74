// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-nvidia,canonicalize,cse)' | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(lower-to-amd,canonicalize,cse)' | filecheck %s

// A translation or a token is applied to the scalar pointer that pointers are computed from, and what Triton knows of its
// alignment is said of the result.

// CHECK-LABEL: tt.func public @tensor_of_pointers(
// CHECK: %[[THERE:.*]] = tt.extern_elementwise %arg2, %arg0, %arg1 {{.*}} symbol = "ditron_symm_at", tt.divisibility = dense<16> : tensor<1xi32>
// CHECK: %[[BASES:.*]] = tt.splat %[[THERE]] :
// CHECK: %[[PTRS:.*]] = tt.addptr %[[BASES]], %[[RANGE:.*]] :
// CHECK: tt.load %[[PTRS]] :
tt.func public @tensor_of_pointers(%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %range = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
  %bases = tt.splat %p : !tt.ptr<bf16> -> tensor<1024x!tt.ptr<bf16>>
  %ptrs = tt.addptr %bases, %range : tensor<1024x!tt.ptr<bf16>>, tensor<1024xi32>
  %there = ditron.symm_at %ptrs on %r : tensor<1024x!tt.ptr<bf16>>
  %v = tt.load %there : tensor<1024x!tt.ptr<bf16>>
  tt.store %ptrs, %v : tensor<1024x!tt.ptr<bf16>>
  tt.return
}

// Nothing is known of the alignment of this argument, so nothing is said.
// CHECK-LABEL: tt.func public @unaligned_argument(
// CHECK: tt.extern_elementwise %arg2, %arg0, %arg1
// CHECK-NOT: tt.divisibility
// CHECK: tt.return
tt.func public @unaligned_argument(%p: !tt.ptr<f32>, %r: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1.0 : f32
  %there = ditron.symm_at %p on %r : !tt.ptr<f32>
  tt.store %there, %one : !tt.ptr<f32>
  tt.return
}

// A token that comes out of control flow, consumed by a tensor of pointers and by an index.
// CHECK-LABEL: tt.func public @token_through_control_flow(
// CHECK: %[[TOKEN:.*]] = scf.for {{.*}} -> (i32)
// CHECK: %[[READY:.*]] = tt.addptr %arg0, %[[TOKEN]] :
// CHECK: tt.splat %[[READY]] :
// CHECK: arith.addi %arg1, %[[TOKEN]] : i32
tt.func public @token_through_control_flow(%p: !tt.ptr<f32>, %i: i32, %sig: !tt.ptr<i64>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  %first = ditron.wait %sig[%c1] ge %v : !tt.ptr<i64>
  %last = scf.for %k = %c0 to %i step %c1 iter_args(%before = %first) -> (!ditron.token) : i32 {
    %now = ditron.wait %sig[%k] ge %v : !tt.ptr<i64>
    scf.yield %now : !ditron.token
  }
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %bases = tt.splat %p : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %ptrs = tt.addptr %bases, %range : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  %ready = ditron.consume_token %ptrs, %last : tensor<64x!tt.ptr<f32>>
  %index = ditron.consume_token %i, %last : i32
  %x = tt.load %ready : tensor<64x!tt.ptr<f32>>
  %moved = tt.splat %index : i32 -> tensor<64xi32>
  %out = tt.addptr %bases, %moved : tensor<64x!tt.ptr<f32>>, tensor<64xi32>
  tt.store %out, %x : tensor<64x!tt.ptr<f32>>
  tt.return
}

// Atomic accesses to tensors: the numbers are splat, and a release is preceded by the barrier that makes it the program's.
// CHECK-LABEL: tt.func public @tensors_of_cells(
// CHECK: tt.extern_elementwise %arg0, %[[NODE:.*]], %[[ACQUIRE:.*]] {{.*}} symbol = "ditron_ld_b32"{{.*}} -> tensor<64xi32>
// CHECK: tt.bitcast {{.*}} : tensor<64xi32> -> tensor<64xf32>
// CHECK: symbol = "ditron_sync_threads"
// CHECK: symbol = "ditron_st_b32"
// CHECK: tt.atomic_rmw fadd, relaxed, gpu, %arg0, {{.*}} :
tt.func public @tensors_of_cells(%p: tensor<64x!tt.ptr<f32>>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.ld %p scope node semantic acquire : tensor<64x!tt.ptr<f32>>
  ditron.st %p, %x scope node semantic release : tensor<64x!tt.ptr<f32>>
  ditron.red %p add %x : tensor<64x!tt.ptr<f32>>
  tt.return
}

// A store that depends on the thread is the thread's own; any other scalar is stored once.
// CHECK-LABEL: tt.func public @stores_of_threads(
// CHECK: symbol = "ditron_st_b32"
// CHECK: symbol = "ditron_st_once_b32"
tt.func public @stores_of_threads(%p: !tt.ptr<i32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c1 = arith.constant 1 : i32
  %t = ditron.thread_id
  %own = tt.addptr %p, %t : !tt.ptr<i32>, i32
  ditron.st %own, %c1 : !tt.ptr<i32>
  ditron.st %p, %c1 : !tt.ptr<i32>
  tt.return
}

// A rank for each row: what is looked up is how far its heap is, per rank, before ranks are broadcast; what Triton knows of
// the pointers stays known.
// CHECK-LABEL: tt.func public @rows_of_ranks(
// CHECK: %[[BASES:.*]] = tt.splat %arg0 : !tt.ptr<bf16> -> tensor<4x!tt.ptr<bf16>>
// CHECK: %[[FAR:.*]] = tt.extern_elementwise %{{.*}}, %[[BASES]], %{{.*}} symbol = "ditron_symm_distance", tt.divisibility = dense<8> : tensor<1xi32>{{.*}} -> tensor<4xi64>
// CHECK: %[[COLUMN:.*]] = tt.expand_dims %[[FAR]] {axis = 1 : i32}
// CHECK: %[[WIDE:.*]] = tt.broadcast %[[COLUMN]] : tensor<4x1xi64> -> tensor<4x64xi64>
// CHECK: %[[THERE:.*]] = tt.addptr %{{.*}}, %[[WIDE]] :
// CHECK: tt.load %[[THERE]] :
tt.func public @rows_of_ranks(%p: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %q: !tt.ptr<bf16>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %ranks = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
  %column = tt.expand_dims %ranks {axis = 1 : i32} : tensor<4xi32> -> tensor<4x1xi32>
  %rows = tt.broadcast %column : tensor<4x1xi32> -> tensor<4x64xi32>
  %range = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %offsets = tt.expand_dims %range {axis = 0 : i32} : tensor<64xi32> -> tensor<1x64xi32>
  %wide = tt.broadcast %offsets : tensor<1x64xi32> -> tensor<4x64xi32>
  %bases = tt.splat %p : !tt.ptr<bf16> -> tensor<4x64x!tt.ptr<bf16>>
  %ptrs = tt.addptr %bases, %wide : tensor<4x64x!tt.ptr<bf16>>, tensor<4x64xi32>
  %there = ditron.symm_at %ptrs on %rows : tensor<4x64x!tt.ptr<bf16>>, tensor<4x64xi32>
  %v = tt.load %there : tensor<4x64x!tt.ptr<bf16>>
  %outs = tt.splat %q : !tt.ptr<bf16> -> tensor<4x64x!tt.ptr<bf16>>
  %out = tt.addptr %outs, %wide : tensor<4x64x!tt.ptr<bf16>>, tensor<4x64xi32>
  tt.store %out, %v : tensor<4x64x!tt.ptr<bf16>>
  tt.return
}

// Pointers without a common base are translated one by one.
// CHECK-LABEL: tt.func public @loaded_pointers(
// CHECK: tt.extern_elementwise %{{.*}}, %arg0, %arg1 {{.*}} symbol = "ditron_symm_at"} : (tensor<4x!tt.ptr<i64>>, tensor<4x!tt.ptr<f32>>, tensor<4xi32>) -> tensor<4x!tt.ptr<f32>>
tt.func public @loaded_pointers(%ps: tensor<4x!tt.ptr<f32>>, %rs: tensor<4xi32>, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %there = ditron.symm_at %ps on %rs : tensor<4x!tt.ptr<f32>>, tensor<4xi32>
  tt.store %there, %one : tensor<4x!tt.ptr<f32>>
  tt.return
}
