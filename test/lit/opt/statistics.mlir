// What Python passes count, after everything else, on standard error; without the flag nothing.
// RUN: ditron-opt %s --raise-primitives --cse --mlir-pass-statistics -o %t 2>&1 | filecheck %s
// RUN: ditron-opt %s --raise-primitives -o %t 2>&1 | filecheck %s --check-prefix=SILENT --allow-empty

// CHECK: pass statistics
// CHECK-NEXT: 2  raise-primitives: primitives raised

// SILENT-NOT: statistics

tt.func public @k(%ctx: !tt.ptr<i64>) -> i32 {
  %0 = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron.rank"} : () -> i32
  %1 = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron.node"} : () -> i32
  %2 = "arith.addi"(%0, %1) : (i32, i32) -> i32
  tt.return %2 : i32
}
