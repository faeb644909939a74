// The scaled addition of each product of tensor cores runs beside the next product.
// RUN: ditron-opt %s --allow-unregistered-dialect --overlap-promotion --verify-diagnostics | filecheck %s
// RUN: ditron-opt %s --allow-unregistered-dialect --overlap-promotion --mlir-pass-statistics -o %t 2>&1 | filecheck %s --check-prefix=COUNT

// COUNT: 4  overlap-promotion: products whose promotion is overlapped

!buffers = !ttg.memdesc<3x64x128xf8E4M3FN>
!buffer = !ttg.memdesc<64x128xf8E4M3FN>

// The last product's part of the sum goes to the next iteration, but for that of the last one before the sum is stored.
// CHECK-LABEL: tt.func @two_products(
// CHECK: scf.for {{.*}} iter_args(%[[ACC:.*]] = %[[ZEROS:.*]], %[[BEFORE:.*]] = %[[ZEROS]], %[[SCALE:.*]] = %[[NONE:.*]]) ->
// CHECK: %[[X:.*]] = "ttng.warp_group_dot"(%arg0, %arg1, %[[ZEROS]])
// CHECK: %[[X0:.*]]:4 = "ttng.warp_group_dot_wait"(%[[BEFORE]], %[[X]], %arg0, %arg1) {pendings = 1 : i32}
// CHECK: %[[VIEW:.*]] = tt.broadcast %[[SCALE]]
// CHECK: %[[ACC0:.*]] = tt.elementwise_inline_asm "fma{{.*}} %[[X0]]#0, %[[VIEW]], %[[ACC]]
// CHECK: %[[Y:.*]] = "ttng.warp_group_dot"(%arg2, %arg3, %[[ZEROS]])
// CHECK: %[[Y0:.*]]:4 = "ttng.warp_group_dot_wait"(%[[X0]]#1, %[[Y]], %arg2, %arg3) {pendings = 1 : i32}
// CHECK: %[[ACC1:.*]] = tt.elementwise_inline_asm "fma{{.*}} %[[Y0]]#0, %{{.*}}, %[[ACC0]]
// CHECK: %[[NEXT:.*]] = arith.select %[[LAST:.*]], %[[ZEROS]], %[[ACC1]]
// CHECK: scf.if %[[LAST]] {
// CHECK:   %[[Y1:.*]]:3 = "ttng.warp_group_dot_wait"(%[[Y0]]#1, %arg2, %arg3) {pendings = 0 : i32}
// CHECK:   %[[SUM:.*]] = tt.elementwise_inline_asm "fma{{.*}} %[[Y1]]#0, %{{.*}}, %[[ACC1]]
// CHECK:   "use"(%[[SUM]])
// CHECK: %[[CARRIED:.*]]:2 = scf.if %[[LAST]]
// CHECK:   scf.yield %[[ZEROS]], %[[NONE]]
// CHECK:   scf.yield %[[Y0]]#1, %arg5
// CHECK: scf.yield %[[NEXT]], %[[CARRIED]]#0, %[[CARRIED]]#1
tt.func @two_products(%a: !buffer, %b: !buffer, %c: !buffer, %d: !buffer, %scale_x: tensor<64x1xf32>, %scale_y: tensor<64x1xf32>, %n: i32, %k: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zeros = arith.constant dense<0.0> : tensor<64x128xf32>
  %unused = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zeros) -> (tensor<64x128xf32>) : i32 {
    %x = "ttng.warp_group_dot"(%a, %b, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x128xf32>) -> tensor<64x128xf32>
    %x1:3 = "ttng.warp_group_dot_wait"(%x, %a, %b) {pendings = 0 : i32} : (tensor<64x128xf32>, !buffer, !buffer) -> (tensor<64x128xf32>, !buffer, !buffer)
    %of_x = tt.broadcast %scale_x : tensor<64x1xf32> -> tensor<64x128xf32>
    %scaled_x = arith.mulf %x1#0, %of_x : tensor<64x128xf32>
    %acc1 = arith.addf %acc, %scaled_x : tensor<64x128xf32>
    %y = "ttng.warp_group_dot"(%c, %d, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x128xf32>) -> tensor<64x128xf32>
    %y1:3 = "ttng.warp_group_dot_wait"(%y, %c, %d) {pendings = 0 : i32} : (tensor<64x128xf32>, !buffer, !buffer) -> (tensor<64x128xf32>, !buffer, !buffer)
    %of_y = tt.broadcast %scale_y : tensor<64x1xf32> -> tensor<64x128xf32>
    %scaled_y = arith.mulf %y1#0, %of_y : tensor<64x128xf32>
    %acc2 = arith.addf %acc1, %scaled_y : tensor<64x128xf32>
    %last = arith.cmpi eq, %i, %k : i32
    %next = arith.select %last, %zeros, %acc2 : tensor<64x128xf32>
    scf.if %last {
      "use"(%acc2) : (tensor<64x128xf32>) -> ()
    }
    scf.yield %next : tensor<64x128xf32>
  }
  tt.return
}

// A copy to the buffer of another iteration leaves what the last product reads alone.
// CHECK-LABEL: tt.func @buffers_in_turns(
// CHECK-COUNT-2: pendings = 1
tt.func @buffers_in_turns(%all: !buffers, %source: !tt.ptr<f32>, %scale: tensor<64x1xf32>, %n: i32, %k: i32) {
  %cm1 = arith.constant -1 : i32
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c3 = arith.constant 3 : i32
  %zeros = arith.constant dense<0.0> : tensor<64x64xf32>
  %unused:3 = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zeros, %r = %cm1, %w = %c1) -> (tensor<64x64xf32>, i32, i32) : i32 {
    %r1 = arith.addi %r, %c1 : i32
    %r_ends = arith.cmpi sge, %r1, %c3 : i32
    %read = arith.select %r_ends, %c0, %r1 : i32
    %a = "ttg.memdesc_index"(%all, %read) : (!buffers, i32) -> !buffer
    %b = "ttg.memdesc_trans"(%a) : (!buffer) -> !buffer
    %of = tt.broadcast %scale : tensor<64x1xf32> -> tensor<64x64xf32>
    %x = "ttng.warp_group_dot"(%a, %b, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %x1:3 = "ttng.warp_group_dot_wait"(%x, %a, %b) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_x = arith.mulf %x1#0, %of : tensor<64x64xf32>
    %acc1 = arith.addf %acc, %scaled_x : tensor<64x64xf32>
    %y = "ttng.warp_group_dot"(%a, %b, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %y1:3 = "ttng.warp_group_dot_wait"(%y, %a, %b) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_y = arith.mulf %y1#0, %of : tensor<64x64xf32>
    %acc2 = arith.addf %acc1, %scaled_y : tensor<64x64xf32>
    %w1 = arith.addi %w, %c1 : i32
    %w_ends = arith.cmpi sge, %w1, %c3 : i32
    %write = arith.select %w_ends, %c0, %w1 : i32
    %to = "ttg.memdesc_index"(%all, %write) : (!buffers, i32) -> !buffer
    "ttg.async_copy_global_to_local"(%source, %to) : (!tt.ptr<f32>, !buffer) -> ()
    %last = arith.cmpi eq, %i, %k : i32
    %next = arith.select %last, %zeros, %acc2 : tensor<64x64xf32>
    scf.if %last {
      "use"(%acc2) : (tensor<64x64xf32>) -> ()
    }
    scf.yield %next, %read, %write : tensor<64x64xf32>, i32, i32
  }
  tt.return
}

// A copy to the buffer that the last product reads has to wait for it.
// CHECK-LABEL: tt.func @overwritten(
// CHECK-NOT: pendings = 1
tt.func @overwritten(%all: !buffers, %source: !tt.ptr<f32>, %scale: tensor<64x1xf32>, %n: i32, %k: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zeros = arith.constant dense<0.0> : tensor<64x64xf32>
  // expected-remark@+1 {{tensor cores wait in this loop: what the last product reads may be overwritten}}
  %unused = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zeros) -> (tensor<64x64xf32>) : i32 {
    %a = "ttg.memdesc_index"(%all, %i) : (!buffers, i32) -> !buffer
    %of = tt.broadcast %scale : tensor<64x1xf32> -> tensor<64x64xf32>
    %x = "ttng.warp_group_dot"(%a, %a, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %x1:3 = "ttng.warp_group_dot_wait"(%x, %a, %a) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_x = arith.mulf %x1#0, %of : tensor<64x64xf32>
    %acc1 = arith.addf %acc, %scaled_x : tensor<64x64xf32>
    %y = "ttng.warp_group_dot"(%a, %a, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %y1:3 = "ttng.warp_group_dot_wait"(%y, %a, %a) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_y = arith.mulf %y1#0, %of : tensor<64x64xf32>
    %acc2 = arith.addf %acc1, %scaled_y : tensor<64x64xf32>
    "ttg.async_copy_global_to_local"(%source, %a) : (!tt.ptr<f32>, !buffer) -> ()
    %last = arith.cmpi eq, %i, %k : i32
    %next = arith.select %last, %zeros, %acc2 : tensor<64x64xf32>
    scf.if %last {
      "use"(%acc2) : (tensor<64x64xf32>) -> ()
    }
    scf.yield %next : tensor<64x64xf32>
  }
  tt.return
}

// A sum that is read in each iteration cannot wait for the next.
// CHECK-LABEL: tt.func @read_in_the_loop(
// CHECK-NOT: pendings = 1
tt.func @read_in_the_loop(%a: !buffer, %scale: tensor<64x64xf32>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zeros = arith.constant dense<0.0> : tensor<64x64xf32>
  // expected-remark@+1 {{tensor cores wait in this loop: the sum does not begin anew under a condition}}
  %unused = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zeros) -> (tensor<64x64xf32>) : i32 {
    %x = "ttng.warp_group_dot"(%a, %a, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %x1:3 = "ttng.warp_group_dot_wait"(%x, %a, %a) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_x = arith.mulf %x1#0, %scale : tensor<64x64xf32>
    %acc1 = arith.addf %acc, %scaled_x : tensor<64x64xf32>
    %y = "ttng.warp_group_dot"(%a, %a, %zeros) {isAsync = true} : (!buffer, !buffer, tensor<64x64xf32>) -> tensor<64x64xf32>
    %y1:3 = "ttng.warp_group_dot_wait"(%y, %a, %a) {pendings = 0 : i32} : (tensor<64x64xf32>, !buffer, !buffer) -> (tensor<64x64xf32>, !buffer, !buffer)
    %scaled_y = arith.mulf %y1#0, %scale : tensor<64x64xf32>
    %acc2 = arith.addf %acc1, %scaled_y : tensor<64x64xf32>
    "use"(%acc2) : (tensor<64x64xf32>) -> ()
    scf.yield %acc2 : tensor<64x64xf32>
  }
  tt.return
}
