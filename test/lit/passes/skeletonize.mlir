// What decides when things happen stays; floating-point data goes, with what computed it.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(insert-costs,skeletonize,canonicalize,cse,canonicalize)' | filecheck %s

// CHECK-LABEL: tt.func public @gemm(
tt.func public @gemm(%p: !tt.ptr<bf16>, %sig: !tt.ptr<i64>, %n: i32, %epoch: i64, %r: i32, %at: tensor<16x16x!tt.ptr<bf16>>) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  // CHECK: ditron.wait
  %token = ditron.wait %sig[%c1] ge %epoch : !tt.ptr<i64>
  // CHECK: ditron.spend dot16
  // CHECK-NOT: scf.for
  %sum = scf.for %k = %c0 to %n step %c1 iter_args(%acc = %zero) -> (tensor<16x16xf32>) : i32 {
    %x = tt.load %at : tensor<16x16x!tt.ptr<bf16>>
    %d = tt.dot %x, %x, %acc : tensor<16x16xbf16> * tensor<16x16xbf16> -> tensor<16x16xf32>
    scf.yield %d : tensor<16x16xf32>
  }
  // CHECK: ditron.spend store
  %y = arith.truncf %sum : tensor<16x16xf32> to tensor<16x16xbf16>
  tt.store %at, %y : tensor<16x16x!tt.ptr<bf16>>
  // CHECK: ditron.notify
  ditron.notify %sig set %epoch on %r : !tt.ptr<i64>
  // CHECK-NEXT: tt.return
  tt.return
}

// Integers are loaded, computed and stored as they are, and decide.
// CHECK-LABEL: tt.func public @routing(
tt.func public @routing(%ids: !tt.ptr<i32>, %sig: !tt.ptr<i64>, %v: i64) {
  // CHECK: %[[EXPERT:.*]] = tt.load
  %expert = tt.load %ids : !tt.ptr<i32>
  // CHECK: tt.store
  tt.store %ids, %expert : !tt.ptr<i32>
  // CHECK: ditron.notify %{{.*}} set %{{.*}} on %[[EXPERT]]
  ditron.notify %sig set %v on %expert : !tt.ptr<i64>
  tt.return
}

// A branch over data alone may depend on data: it goes.
// CHECK-LABEL: tt.func public @data_only(
tt.func public @data_only(%p: !tt.ptr<f32>) {
  // CHECK-NEXT: tt.return
  %x = tt.load %p : !tt.ptr<f32>
  %zero = arith.constant 0.0 : f32
  %positive = arith.cmpf ogt, %x, %zero : f32
  %y = scf.if %positive -> (f32) {
    scf.yield %x : f32
  } else {
    scf.yield %zero : f32
  }
  tt.store %p, %y : !tt.ptr<f32>
  tt.return
}

// Puts of floats take time and are not moved; those of integers are.
// CHECK-LABEL: tt.func public @puts(
tt.func public @puts(%x: !tt.ptr<bf16>, %ids: !tt.ptr<i32>, %sig: !tt.ptr<i64>, %n: i64, %v: i64, %r: i32) {
  // CHECK-NEXT: ditron.putmem {{.*}} {ditron.floats} : !tt.ptr<bf16>
  ditron.putmem %x, %x, %n on %r : !tt.ptr<bf16>, !tt.ptr<bf16>
  // CHECK-NEXT: ditron.putmem_signal {{.*}} {ditron.floats} : !tt.ptr<bf16>
  ditron.putmem_signal %x, %x, %n, %sig set %v on %r : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
  // CHECK-NOT: ditron.floats
  ditron.putmem %ids, %ids, %n on %r : !tt.ptr<i32>, !tt.ptr<i32>
  tt.return
}

// A condition of floats is drawn where its probability is known, each time that it is met; one of integers is computed.
// CHECK-LABEL: tt.func public @expected(
tt.func public @expected(%p: !tt.ptr<f32>, %ids: !tt.ptr<i32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32) {
  // CHECK: ditron.expect 2.500000e-01
  // CHECK: ditron.expect 2.500000e-01
  // CHECK: scf.while
  // CHECK-NEXT: %[[AGAIN:.*]] = ditron.expect 9.000000e-01 uniform
  // CHECK-NEXT: scf.condition(%[[AGAIN]])
  // CHECK: %[[LESS:.*]] = arith.cmpi
  // CHECK-NEXT: %[[KNOWN:.*]] = ditron.expect %[[LESS]], 5.000000e-01
  // CHECK-NEXT: scf.if %[[KNOWN]]
  %x = tt.load %p : !tt.ptr<f32>
  %zero = arith.constant 0.0 : f32
  %positive = arith.cmpf ogt, %x, %zero : f32
  %once = ditron.expect %positive, 0.25
  scf.if %once {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  %twice = ditron.expect %positive, 0.25
  scf.if %twice {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  scf.while : () -> () {
    %again = ditron.expect %positive, 0.9 uniform
    scf.condition(%again)
  } do {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
    scf.yield
  }
  %id = tt.load %ids : !tt.ptr<i32>
  %less = arith.cmpi slt, %id, %n : i32
  %known = ditron.expect %less, 0.5
  scf.if %known {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// What follows from one that is drawn is known, and not drawn again.
// CHECK-LABEL: tt.func public @of_one_that_is_drawn(
tt.func public @of_one_that_is_drawn(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32) {
  // CHECK: %[[DRAWN:.*]] = ditron.expect 2.500000e-01
  // CHECK: %[[LESS:.*]] = arith.cmpi
  // CHECK: %[[BOTH:.*]] = arith.andi %[[DRAWN]], %[[LESS]]
  // CHECK: ditron.expect %[[BOTH]], 1.250000e-01
  %x = tt.load %p : !tt.ptr<f32>
  %positive = arith.cmpf ogt, %x, %x : f32
  %drawn = ditron.expect %positive, 0.25
  %less = arith.cmpi slt, %r, %n : i32
  %both = arith.andi %drawn, %less : i1
  %known = ditron.expect %both, 0.125
  scf.if %known {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// A word beside an epoch is stored without its float: the epoch is what its reader waits for.
// CHECK-LABEL: tt.func public @word(
tt.func public @word(%p: !tt.ptr<bf16>, %box: tensor<8x!tt.ptr<i64>>, %at: tensor<8x2xi32>, %epoch: tensor<8xi64>) {
  %c32 = arith.constant dense<32> : tensor<8xi64>
  %low = arith.constant dense<4294967295> : tensor<8xi64>
  %splat = tt.splat %p : !tt.ptr<bf16> -> tensor<8x2x!tt.ptr<bf16>>
  %pointers = tt.addptr %splat, %at : tensor<8x2x!tt.ptr<bf16>>, tensor<8x2xi32>
  // CHECK-NOT: tt.bitcast
  // CHECK: %[[EPOCH:.*]] = arith.shli
  // CHECK-NOT: arith.andi
  // CHECK: ditron.st %{{.*}}, %[[EPOCH]] scope node
  %x = tt.load %pointers : tensor<8x2x!tt.ptr<bf16>>
  %bits = tt.bitcast %x : tensor<8x2xbf16> -> tensor<8x2xi16>
  %wide = arith.extsi %bits : tensor<8x2xi16> to tensor<8x2xi32>
  %data = "tt.reduce"(%wide) <{axis = 1 : i32}> ({
  ^bb0(%a: i32, %b: i32):
    %sum = arith.addi %a, %b : i32
    tt.reduce.return %sum : i32
  }) : (tensor<8x2xi32>) -> tensor<8xi32>
  %extended = arith.extsi %data : tensor<8xi32> to tensor<8xi64>
  %below = arith.andi %extended, %low : tensor<8xi64>
  %above = arith.shli %epoch, %c32 : tensor<8xi64>
  %word = arith.ori %above, %below : tensor<8xi64>
  ditron.st %box, %word scope node : tensor<8x!tt.ptr<i64>>
  tt.return
}

// A word that is all data is stored as a number that is not 0, which is what its reader waits for.
// CHECK-LABEL: tt.func public @data_word(
tt.func public @data_word(%p: !tt.ptr<f32>, %box: tensor<8x!tt.ptr<i64>>, %at: tensor<8x2xi32>) {
  %c0 = arith.constant dense<0> : tensor<8xi64>
  %c1 = arith.constant dense<1> : tensor<8xi64>
  %ones = arith.constant dense<-1> : tensor<8xi64>
  %splat = tt.splat %p : !tt.ptr<f32> -> tensor<8x2x!tt.ptr<f32>>
  %pointers = tt.addptr %splat, %at : tensor<8x2x!tt.ptr<f32>>, tensor<8x2xi32>
  // CHECK-NOT: tt.bitcast
  // CHECK-NOT: arith.select
  // CHECK: ditron.st %{{.*}}, %[[THERE:.*]] scope node
  // CHECK-NOT: tt.load
  %x = tt.load %pointers : tensor<8x2x!tt.ptr<f32>>
  %bits = tt.bitcast %x : tensor<8x2xf32> -> tensor<8x2xi32>
  %wide = arith.extui %bits : tensor<8x2xi32> to tensor<8x2xi64>
  %data = "tt.reduce"(%wide) <{axis = 1 : i32}> ({
  ^bb0(%a: i64, %b: i64):
    %sum = arith.addi %a, %b : i64
    tt.reduce.return %sum : i64
  }) : (tensor<8x2xi64>) -> tensor<8xi64>
  %inverted = arith.xori %data, %ones : tensor<8xi64>
  %is_zero = arith.cmpi eq, %inverted, %c0 : tensor<8xi64>
  %word = arith.select %is_zero, %c1, %inverted : tensor<8xi1>, tensor<8xi64>
  ditron.st %box, %word scope node : tensor<8x!tt.ptr<i64>>
  tt.return
}
