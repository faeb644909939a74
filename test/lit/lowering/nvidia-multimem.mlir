// RUN: %python %S/../../python/support/gpu_stages.py %S/Inputs/multimem.mlir --target cuda:90 --stage llir | filecheck %s

// NVLink multicast: 16-bit floats go in pairs, are added in f32, and a 16-bit store is an and and an or of the pair.

// CHECK-LABEL: define {{.*}} @multimem_f32(
// CHECK: multimem.ld_reduce.relaxed.sys.global.add.f32
// CHECK: multimem.red.relaxed.sys.global.add.f32
// CHECK: multimem.st.relaxed.sys.global.f32
// CHECK-LABEL: define {{.*}} @multimem_bf16(
// CHECK: multimem.ld_reduce.relaxed.sys.global.add.acc::f32.bf16x2
// CHECK: multimem.red.relaxed.sys.global.add.bf16x2
// CHECK: multimem.red.relaxed.sys.global.and.b32
// CHECK: multimem.red.relaxed.sys.global.or.b32
// CHECK-LABEL: define {{.*}} @multimem_f16(
// CHECK: multimem.ld_reduce.relaxed.sys.global.max.f16x2
// CHECK-LABEL: define {{.*}} @multimem_i64(
// CHECK: multimem.ld_reduce.relaxed.sys.global.min.s64
// CHECK: multimem.red.relaxed.sys.global.min.s64
// CHECK: multimem.st.relaxed.sys.global.u64
