// mlir-opt's printing and timing work with Python passes, which go by their class's name.
// RUN: ditron-opt %s --pass-pipeline='builtin.module(raise-primitives,cse)' --mlir-print-ir-after-all 2>&1 | filecheck %s
// RUN: ditron-opt %s --raise-primitives --cse --mlir-print-ir-before=cse 2>&1 | filecheck %s --check-prefix=BEFORE
// RUN: ditron-opt %s --raise-primitives --mlir-timing --mlir-timing-display=list 2>&1 | filecheck %s --check-prefix=TIME
// RUN: ditron-opt %s --raise-primitives --mlir-print-debuginfo | filecheck %s --check-prefix=LOC

// CHECK: IR Dump After RaisePrimitives (raise-primitives)
// CHECK: IR Dump After {{.*}} (cse)

// BEFORE-NOT: (raise-primitives)
// BEFORE: IR Dump Before {{.*}} (cse)

// TIME: Execution time report
// TIME: RaisePrimitives

// LOC: loc("kernel.py":3:1)

func.func @f() {
  return loc("kernel.py":3:1)
}
