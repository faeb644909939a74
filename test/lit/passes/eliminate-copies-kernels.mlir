// RUN: ditron-opt %s --eliminate-copies --canonicalize --split-input-file --verify-diagnostics | filecheck %s

// The tile is put from where it was loaded; the load and the store are removed.
// CHECK-LABEL: tt.func @send(
// CHECK-SAME: %[[X:.*]]: !tt.ptr<f32>, %[[STAGING:.*]]: !tt.ptr<f32>, %[[INBOX:.*]]: !tt.ptr<f32>, %[[N:.*]]: i32
// CHECK-NOT:  tt.store
// CHECK-NOT:  tt.load
// CHECK:      ditron.putmem %[[INBOX]], %[[X]], %{{.*}} on
tt.func @send(%x: !tt.ptr<f32>, %staging: !tt.ptr<f32>, %inbox: !tt.ptr<f32>, %n: i32, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %four = arith.constant 4 : i32
  %at = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %ns = tt.splat %n : i32 -> tensor<16xi32>
  %mask = arith.cmpi slt, %at, %ns : tensor<16xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %from = tt.addptr %xs, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  %tile = tt.load %from, %mask : tensor<16x!tt.ptr<f32>>
  %ss = tt.splat %staging : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %to = tt.addptr %ss, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  tt.store %to, %tile, %mask : tensor<16x!tt.ptr<f32>>
  %bytes = arith.muli %n, %four : i32
  %nbytes = arith.extsi %bytes : i32 to i64
  ditron.putmem %inbox, %staging, %nbytes on %peer : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
ditron.program @p(%x: !ditron.buffer<16xf32>, %n: i32, %peer: i32) {
  %staging = ditron.alloc "staging" [16] : <16xf32>
  %inbox = ditron.alloc "inbox" [16] : <16xf32, symmetric>
  ditron.launch @send grid(1) (%x, %staging, %inbox, %n, %peer) : (!ditron.buffer<16xf32>, !ditron.buffer<16xf32>, !ditron.buffer<16xf32, symmetric>, i32, i32)
}

// -----

// CHECK-LABEL: tt.func @more_than_stored(
// CHECK: tt.store
tt.func @more_than_stored(%x: !tt.ptr<f32>, %staging: !tt.ptr<f32>, %inbox: !tt.ptr<f32>, %nbytes: i64, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %at = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %from = tt.addptr %xs, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  %tile = tt.load %from : tensor<16x!tt.ptr<f32>>
  %ss = tt.splat %staging : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %to = tt.addptr %ss, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  tt.store %to, %tile : tensor<16x!tt.ptr<f32>>
  // expected-note@+1 {{here}}
  ditron.putmem %inbox, %staging, %nbytes on %peer : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
ditron.program @p(%x: !ditron.buffer<16xf32>, %n: i64, %peer: i32) {
  %staging = ditron.alloc "staging" [16] : <16xf32>
  %inbox = ditron.alloc "inbox" [16] : <16xf32, symmetric>
  // expected-remark@+1 {{a kernel's copy to a staging buffer kept: the put may send more than was stored}}
  ditron.launch @more_than_stored grid(1) (%x, %staging, %inbox, %n, %peer) : (!ditron.buffer<16xf32>, !ditron.buffer<16xf32>, !ditron.buffer<16xf32, symmetric>, i64, i32)
}

// -----

// CHECK-LABEL: tt.func @the_callers(
// CHECK: tt.store
tt.func @the_callers(%x: !tt.ptr<f32>, %staging: !tt.ptr<f32>, %inbox: !tt.ptr<f32>, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %nbytes = arith.constant 64 : i64
  %at = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %from = tt.addptr %xs, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  %tile = tt.load %from : tensor<16x!tt.ptr<f32>>
  %ss = tt.splat %staging : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %to = tt.addptr %ss, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  tt.store %to, %tile : tensor<16x!tt.ptr<f32>>
  ditron.putmem %inbox, %staging, %nbytes on %peer : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
ditron.program @p(%x: !ditron.buffer<16xf32>, %staging: !ditron.buffer<16xf32>, %peer: i32) {
  %inbox = ditron.alloc "inbox" [16] : <16xf32, symmetric>
  // expected-remark@+2 {{a kernel's copy to a staging buffer kept: the staging buffer is an argument, which the caller may read}}
  // expected-note@+1 {{here}}
  ditron.launch @the_callers grid(1) (%x, %staging, %inbox, %peer) : (!ditron.buffer<16xf32>, !ditron.buffer<16xf32>, !ditron.buffer<16xf32, symmetric>, i32)
}

// -----

// CHECK-LABEL: tt.func @told_in_between(
// CHECK: tt.store
tt.func @told_in_between(%x: !tt.ptr<f32>, %staging: !tt.ptr<f32>, %inbox: !tt.ptr<f32>, %peer: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %nbytes = arith.constant 64 : i64
  %at = tt.make_range {end = 16 : i32, start = 0 : i32} : tensor<16xi32>
  %xs = tt.splat %x : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %from = tt.addptr %xs, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  %tile = tt.load %from : tensor<16x!tt.ptr<f32>>
  %ss = tt.splat %staging : !tt.ptr<f32> -> tensor<16x!tt.ptr<f32>>
  %to = tt.addptr %ss, %at : tensor<16x!tt.ptr<f32>>, tensor<16xi32>
  tt.store %to, %tile : tensor<16x!tt.ptr<f32>>
  // expected-note@+1 {{here}}
  ditron.fence
  ditron.putmem %inbox, %staging, %nbytes on %peer : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
ditron.program @p(%x: !ditron.buffer<16xf32>, %peer: i32) {
  %staging = ditron.alloc "staging" [16] : <16xf32>
  %inbox = ditron.alloc "inbox" [16] : <16xf32, symmetric>
  // expected-remark@+1 {{a kernel's copy to a staging buffer kept: peers may be signaled in between that they may overwrite the tile}}
  ditron.launch @told_in_between grid(1) (%x, %staging, %inbox, %peer) : (!ditron.buffer<16xf32>, !ditron.buffer<16xf32>, !ditron.buffer<16xf32, symmetric>, i32)
}
