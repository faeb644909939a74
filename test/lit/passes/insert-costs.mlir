// What a kernel spends stands before the operation that spends it.
// RUN: ditron-opt %s --insert-costs | filecheck %s
// RUN: ditron-opt %s --pass-pipeline='builtin.module(insert-costs{operations-per-kb=28672 load-ns=600 load-ns-per-kb=10 num-warps=8 num-stages=3},canonicalize,cse)' | filecheck %s --check-prefix=FED
// RUN: ditron-opt %s --pass-pipeline='builtin.module(insert-costs{operations-per-kb=28672 num-warps=16},canonicalize,cse)' | filecheck %s --check-prefix=WARPS

// CHECK-LABEL: tt.func @product(
tt.func @product(%a: tensor<64x32xbf16>, %b: tensor<32x16xbf16>, %c: tensor<64x16xf32>) -> tensor<64x16xf32> {
  // CHECK: %[[FLOP:.*]] = arith.constant 65536 : i64
  // CHECK-NEXT: ditron.spend dot16 %[[FLOP]]
  // CHECK-NEXT: tt.dot
  %d = tt.dot %a, %b, %c : tensor<64x32xbf16> * tensor<32x16xbf16> -> tensor<64x16xf32>
  tt.return %d : tensor<64x16xf32>
}

// The rate of a product depends on the width of its operands.
// CHECK-LABEL: tt.func @widths(
tt.func @widths(%a: tensor<16x32xi8>, %b: tensor<32x16xi8>, %c: tensor<16x16xi32>, %x: tensor<16x16xf32>) {
  // CHECK: ditron.spend dot8
  %d = tt.dot %a, %b, %c : tensor<16x32xi8> * tensor<32x16xi8> -> tensor<16x16xi32>
  // CHECK: ditron.spend dot32
  %e = tt.dot %x, %x, %x : tensor<16x16xf32> * tensor<16x16xf32> -> tensor<16x16xf32>
  tt.return
}

// A load that only products use costs nothing beside them, one that is stored costs its bytes. Scalars cost nothing.
// CHECK-LABEL: tt.func @loads(
tt.func @loads(%p: !tt.ptr<bf16>, %at: tensor<16x16x!tt.ptr<bf16>>, %c: tensor<16x16xf32>) {
  // CHECK-NOT: ditron.spend
  // CHECK: tt.load
  %x = tt.load %at : tensor<16x16x!tt.ptr<bf16>>
  // CHECK-NOT: ditron.spend load
  // CHECK: ditron.spend dot16
  %t = tt.trans %x {order = array<i32: 1, 0>} : tensor<16x16xbf16> -> tensor<16x16xbf16>
  %d = tt.dot %x, %t, %c : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
  // CHECK: %[[BYTES:.*]] = arith.constant 512 : i64
  // CHECK-NEXT: ditron.spend load %[[BYTES]]
  // CHECK-NEXT: tt.load
  %y = tt.load %at : tensor<16x16x!tt.ptr<bf16>>
  // CHECK: ditron.spend store
  // CHECK-NEXT: tt.store
  tt.store %at, %y : tensor<16x16x!tt.ptr<bf16>>
  // CHECK-NOT: ditron.spend
  %s = tt.load %p : !tt.ptr<bf16>
  tt.store %p, %s : !tt.ptr<bf16>
  tt.return
}

// Words that a tensor stores atomically cost their bytes; a flag, which is a scalar, nothing.
// CHECK-LABEL: tt.func @words(
tt.func @words(%p: !tt.ptr<i64>, %r: i32, %offsets: tensor<128xi32>, %x: tensor<128xi64>, %flag: i64) {
  // CHECK: %[[FAR:.*]] = ditron.symm_at
  %far = ditron.symm_at %p on %r : !tt.ptr<i64>
  %s = tt.splat %far : !tt.ptr<i64> -> tensor<128x!tt.ptr<i64>>
  %at = tt.addptr %s, %offsets : tensor<128x!tt.ptr<i64>>, tensor<128xi32>
  // CHECK: %[[BYTES:.*]] = arith.constant 1024 : i64
  // CHECK-NEXT: ditron.spend store %[[BYTES]] at %[[FAR]] : !tt.ptr<i64>
  // CHECK-NEXT: ditron.st
  ditron.st %at, %x scope node : tensor<128x!tt.ptr<i64>>
  // CHECK-NOT: ditron.spend
  ditron.st %far, %flag scope node : !tt.ptr<i64>
  tt.return
}

// Memory of another rank is named by the scalar that symm_at gave, also behind a descriptor.
// CHECK-LABEL: tt.func @peers(
tt.func @peers(%p: !tt.ptr<bf16>, %r: i32, %n: i32, %m: i64, %offsets: tensor<16x64xi32>, %x: tensor<16x64xbf16>) {
  // CHECK: %[[FAR:.*]] = ditron.symm_at
  %far = ditron.symm_at %p on %r : !tt.ptr<bf16>
  %s = tt.splat %far : !tt.ptr<bf16> -> tensor<16x64x!tt.ptr<bf16>>
  %at = tt.addptr %s, %offsets : tensor<16x64x!tt.ptr<bf16>>, tensor<16x64xi32>
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<bf16>
  tt.store %at, %x : tensor<16x64x!tt.ptr<bf16>>
  %one = arith.constant 1 : i64
  %desc = tt.make_tensor_descriptor %far, [%n, %n], [%m, %one] : <bf16>, <tensor<16x64xbf16>>
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<bf16>
  tt.descriptor_store %desc[%n, %n], %x : !tt.tensordesc<tensor<16x64xbf16>>, tensor<16x64xbf16>
  tt.return
}

// What no program has of its own is read once for all.
// CHECK-LABEL: tt.func @shared_by_all(
tt.func @shared_by_all(%weight: !tt.ptr<bf16>, %at: tensor<64x!tt.ptr<bf16>>) {
  // CHECK-NOT: ditron.spend load
  %all = tt.splat %weight : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>>
  %w = tt.load %all : tensor<64x!tt.ptr<bf16>>
  // CHECK: ditron.spend store
  tt.store %at, %w : tensor<64x!tt.ptr<bf16>>
  tt.return
}

// Operations on elements are added up: a product that is added is one with the addition, a maximum two, an exponential
// is one of the special function units too, and so is a division, with eight.
// CHECK-LABEL: tt.func @elements(
tt.func @elements(%at: tensor<64x!tt.ptr<f32>>, %x: tensor<64xf32>, %y: tensor<64xf32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %a = arith.mulf %x, %y : tensor<64xf32>
  %b = arith.addf %a, %y : tensor<64xf32>
  %c = arith.maximumf %b, %y : tensor<64xf32>
  %d = math.exp2 %c : tensor<64xf32>
  // CHECK: %[[VECTOR:.*]] = arith.constant 256 : i64
  // CHECK-NEXT: ditron.spend vector %[[VECTOR]]
  // CHECK-NEXT: %[[SPECIAL:.*]] = arith.constant 64 : i64
  // CHECK-NEXT: ditron.spend special %[[SPECIAL]]
  // CHECK-NEXT: ditron.notify
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  %e = arith.divf %d, %y : tensor<64xf32>
  %f = "tt.reduce"(%e) <{axis = 0 : i32}> ({
  ^bb0(%p: f32, %q: f32):
    %s = arith.addf %p, %q : f32
    "tt.reduce.return"(%s) : (f32) -> ()
  }) : (tensor<64xf32>) -> f32
  tt.store %at, %e : tensor<64x!tt.ptr<f32>>
  // CHECK: %[[MORE:.*]] = arith.constant 576 : i64
  // CHECK-NEXT: ditron.spend vector %[[MORE]]
  // CHECK: ditron.spend special
  tt.return
}

// Where tensor cores do 28672 operations while 1 KB passes shared memory, a small tile takes as long as its operands:
// 32 KB written, 48 KB read by eight warps, and 64 by sixteen, of which two groups read the same rows. Operands that are
// not loaded in the same loop, or are computed, do not count. A loop that does nothing else says all in front of it.
// FED-LABEL: tt.func @fed(
// WARPS-LABEL: tt.func @fed(
tt.func @fed(%at: tensor<128x64x!tt.ptr<bf16>>, %to: tensor<64x128x!tt.ptr<bf16>>, %wide: tensor<64x256x!tt.ptr<bf16>>, %c: tensor<128x128xf32>, %w: tensor<128x256xf32>, %n: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %kept = tt.load %at : tensor<128x64x!tt.ptr<bf16>>
  // FED-DAG: %[[SHARED:.*]] = arith.constant 2293760 : i64
  // WARPS: arith.constant 2752512 : i64
  // FED-DAG: %[[PRODUCT:.*]] = arith.constant 4194304 : i64
  // FED-DAG: %[[ONE:.*]] = arith.constant 2097152 : i64
  // FED: %[[STEPS:.*]] = arith.extsi %arg5 : i32 to i64
  // FED-NEXT: %[[A:.*]] = arith.muli %[[STEPS]], %[[SHARED]]
  // FED-NEXT: ditron.spend dot16 %[[A]]
  // FED-NEXT: %[[B:.*]] = arith.muli %[[STEPS]], %[[PRODUCT]]
  // FED-NEXT: ditron.spend dot16 %[[B]]
  // FED-NEXT: %[[C:.*]] = arith.muli %[[STEPS]], %[[ONE]]
  // FED-NEXT: ditron.spend dot16 %[[C]]
  // FED-NEXT: ditron.spend dot16 %[[B]]
  // FED-NOT: ditron.spend {{operand|latency}}
  scf.for %k = %zero to %n step %one : i32 {
    %x = tt.load %at : tensor<128x64x!tt.ptr<bf16>>
    %y = tt.load %to : tensor<64x128x!tt.ptr<bf16>>
    %z = tt.load %wide : tensor<64x256x!tt.ptr<bf16>>
    %d = tt.dot %x, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    %e = tt.dot %x, %z, %w : tensor<128x64xbf16> * tensor<64x256xbf16> -> tensor<128x256xf32>
    %f = tt.dot %kept, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    %p = arith.truncf %d : tensor<128x128xf32> to tensor<128x128xbf16>
    %g = tt.dot %p, %p, %c : tensor<128x128xbf16> * tensor<128x128xbf16> -> tensor<128x128xf32>
  }
  tt.return
}

// In front of a loop over K: its operations, the bytes of each operand and where they begin, and what three stages take
// of the loads' latency at least: (600 + 32 KB at 10 ns a KB) / 2 an iteration. What communicates in the loop leaves the
// products where they are. A loop may say its own number of stages. Of a load whose address says no single beginning nothing is known.
// FED-LABEL: tt.func @streamed(
tt.func @streamed(%a: !tt.tensordesc<tensor<128x64xbf16>>, %p: tensor<64x128x!tt.ptr<bf16>>, %c: tensor<128x128xf32>, %m: i32, %n: i32, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %two = arith.constant 2 : i32
  %depth = arith.constant 64 : i32
  %next = arith.constant dense<64> : tensor<64x128xi32>
  // FED: %[[SUM:.*]] = arith.muli %{{.*}}, %{{.*}} : i64
  // FED-NEXT: ditron.spend loop %[[SUM]]
  // FED-NEXT: %[[BYTES:.*]] = arith.muli
  // FED-NEXT: ditron.spend operand %[[BYTES]] at %arg0, %arg3, %c0_i32 : !tt.tensordesc<tensor<128x64xbf16>>, i32, i32
  // FED-NEXT: ditron.spend operand %[[BYTES]] at %arg1 : tensor<64x128x!tt.ptr<bf16>>
  // FED-NEXT: %[[NS:.*]] = arith.muli %{{.*}}, %c460_i64
  // FED-NEXT: ditron.spend latency %[[NS]]
  // FED-NEXT: scf.for
  %0 = scf.for %k = %zero to %n step %one iter_args(%q = %p) -> (tensor<64x128x!tt.ptr<bf16>>) : i32 {
    %at = arith.muli %k, %depth : i32
    %x = "tt.descriptor_load"(%a, %m, %at) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
    %y = tt.load %q : tensor<64x128x!tt.ptr<bf16>>
    // FED: ditron.spend dot16
    %d = tt.dot %x, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
    %more = tt.addptr %q, %next : tensor<64x128x!tt.ptr<bf16>>, tensor<64x128xi32>
    scf.yield %more : tensor<64x128x!tt.ptr<bf16>>
  }
  // FED: %[[MORE:.*]] = arith.muli %{{.*}}, %c230_i64
  // FED-NEXT: ditron.spend latency %[[MORE]]
  %2 = scf.for %k = %zero to %n step %one iter_args(%q = %p) -> (tensor<64x128x!tt.ptr<bf16>>) : i32 {
    %at = arith.muli %k, %depth : i32
    %x = "tt.descriptor_load"(%a, %m, %at) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
    %y = tt.load %q : tensor<64x128x!tt.ptr<bf16>>
    %d = tt.dot %x, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    %more = tt.addptr %q, %next : tensor<64x128x!tt.ptr<bf16>>, tensor<64x128xi32>
    scf.yield %more : tensor<64x128x!tt.ptr<bf16>>
  } {tt.num_stages = 5 : i32}
  // FED-NOT: ditron.spend operand
  %1 = scf.for %k = %zero to %n step %one iter_args(%q = %p) -> (tensor<64x128x!tt.ptr<bf16>>) : i32 {
    %row = arith.divsi %k, %two : i32
    %x = "tt.descriptor_load"(%a, %row, %k) : (!tt.tensordesc<tensor<128x64xbf16>>, i32, i32) -> tensor<128x64xbf16>
    %y = arith.constant dense<1.0> : tensor<64x128xbf16>
    %d = tt.dot %x, %y, %c : tensor<128x64xbf16> * tensor<64x128xbf16> -> tensor<128x128xf32>
    scf.yield %q : tensor<64x128x!tt.ptr<bf16>>
  }
  tt.return
}

// Pointers that are chosen element by element count as those of the other rank.
// CHECK-LABEL: tt.func public @chosen(
tt.func public @chosen(%p: !tt.ptr<i64>, %r: i32, %v: tensor<64xi64>, %n: tensor<64xi32>) {
  // CHECK: %[[FAR:.*]] = ditron.symm_at
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<i64>
  // CHECK-NEXT: ditron.st
  // CHECK: ditron.spend store %{{.*}} at %[[FAR]] : !tt.ptr<i64>
  // CHECK-NEXT: ditron.st
  // CHECK: ditron.spend store %{{[a-z0-9_]+$}}
  // CHECK-NEXT: ditron.st
  %at = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %far = ditron.symm_at %p on %r : !tt.ptr<i64>
  %theirs = tt.splat %far : !tt.ptr<i64> -> tensor<64x!tt.ptr<i64>>
  %own = tt.splat %p : !tt.ptr<i64> -> tensor<64x!tt.ptr<i64>>
  %travels = arith.cmpi slt, %at, %n : tensor<64xi32>
  %first = arith.select %travels, %theirs, %own : tensor<64xi1>, tensor<64x!tt.ptr<i64>>
  %to = tt.addptr %first, %at : tensor<64x!tt.ptr<i64>>, tensor<64xi32>
  ditron.st %to, %v scope node : tensor<64x!tt.ptr<i64>>
  %second = arith.select %travels, %own, %first : tensor<64xi1>, tensor<64x!tt.ptr<i64>>
  ditron.st %second, %v scope node : tensor<64x!tt.ptr<i64>>
  %third = arith.select %travels, %own, %own : tensor<64xi1>, tensor<64x!tt.ptr<i64>>
  ditron.st %third, %v scope node : tensor<64x!tt.ptr<i64>>
  tt.return
}

// What a mask leaves out costs nothing, if the mask depends on integers that are loaded: rows of routes that there are.
// CHECK-LABEL: tt.func @masks(
tt.func @masks(%rows: tensor<64x!tt.ptr<i32>>, %at: tensor<64x2x!tt.ptr<bf16>>, %x: tensor<64x2xbf16>, %n: i32) {
  %zero = arith.constant dense<0> : tensor<64x1xi32>
  %row = tt.load %rows : tensor<64x!tt.ptr<i32>>
  %of_row = tt.expand_dims %row {axis = 1 : i32} : tensor<64xi32> -> tensor<64x1xi32>
  %is_there = arith.cmpi sge, %of_row, %zero : tensor<64x1xi32>
  %there = tt.broadcast %is_there : tensor<64x1xi1> -> tensor<64x2xi1>
  // CHECK: %[[SIZE:.*]] = arith.constant 2 : i64
  // CHECK: %[[LANES:.*]] = arith.extui %{{.*}} : tensor<64x2xi1> to tensor<64x2xi32>
  // CHECK: %[[ROWS:.*]] = "tt.reduce"(%[[LANES]]) ({
  // CHECK: arith.addi
  // CHECK: }) {axis = 0 : i32} : (tensor<64x2xi32>) -> tensor<2xi32>
  // CHECK: %[[SUM:.*]] = "tt.reduce"(%[[ROWS]]) ({
  // CHECK: %[[NUMBER:.*]] = arith.extui %[[SUM]] : i32 to i64
  // CHECK: %[[BYTES:.*]] = arith.muli %[[NUMBER]], %[[SIZE]] : i64
  // CHECK-NEXT: ditron.spend store %[[BYTES]]
  // CHECK-NEXT: tt.store
  tt.store %at, %x, %there : tensor<64x2x!tt.ptr<bf16>>
  // The edge of a matrix costs what any other tile does.
  // CHECK: %[[ALL:.*]] = arith.constant 256 : i64
  // CHECK-NEXT: ditron.spend store %[[ALL]]
  // CHECK-NEXT: tt.store
  %column = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32>
  %columns = tt.splat %n : i32 -> tensor<64xi32>
  %is_within = arith.cmpi slt, %column, %columns : tensor<64xi32>
  %of_column = tt.expand_dims %is_within {axis = 1 : i32} : tensor<64xi1> -> tensor<64x1xi1>
  %within = tt.broadcast %of_column : tensor<64x1xi1> -> tensor<64x2xi1>
  tt.store %at, %x, %within : tensor<64x2x!tt.ptr<bf16>>
  tt.return
}
