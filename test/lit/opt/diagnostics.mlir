// A Python pass's errors are diagnostics like any: at the operation, checked by --verify-diagnostics, chunk by chunk.
// RUN: ditron-opt %s --lower-to-nvidia=transport=carrier-pigeon --split-input-file --verify-diagnostics
// RUN: not ditron-opt %s --lower-to-nvidia=transport=carrier-pigeon --split-input-file 2>&1 | filecheck %s

// CHECK: diagnostics.mlir:{{[0-9]+}}:1: error: option 'transport' of 'lower-to-nvidia': expected p2p or nvshmem, got 'carrier-pigeon'

// expected-error@+1 {{expected p2p or nvshmem}}
module @first {
}

// -----

// CHECK: got 'carrier-pigeon'
// expected-error@+1 {{got 'carrier-pigeon'}}
module @second {
}
