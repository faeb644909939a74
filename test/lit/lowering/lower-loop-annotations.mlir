// RUN: ditron-opt --lower-loop-annotations %s | filecheck %s

// CHECK-DAG: #[[WIDE:.*]] = #llvm.loop_annotation<vectorize = #[[WIDTH:.*]]>
// CHECK-DAG: #[[NEVER:.*]] = #llvm.loop_annotation<vectorize = #[[OFF:.*]]>
// CHECK-DAG: #[[WIDTH]] = #llvm.loop_vectorize<width = 16 : i32>
// CHECK-DAG: #[[OFF]] = #llvm.loop_vectorize<disable = true>

// CHECK-LABEL: llvm.func @loops
llvm.func @loops(%c: i1) {
  // CHECK-NOT: loop_annotation
  // CHECK: ^bb1:
  llvm.br ^first
^first:
  // CHECK: llvm.cond_br %{{.*}}, ^bb1, ^bb2 {llvm.loop_annotation = #[[WIDE]], loop_annotation = #[[WIDE]]}
  llvm.cond_br %c, ^first, ^second {llvm.loop_annotation = #llvm.loop_annotation<vectorize = <width = 16 : i32>>}
^second:
  // CHECK: llvm.cond_br %{{.*}}, ^bb2, ^bb3 {loop_annotation = #[[NEVER]]}
  llvm.cond_br %c, ^second, ^end
^end:
  llvm.return
}
