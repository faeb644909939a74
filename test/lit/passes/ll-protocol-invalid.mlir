// RUN: not ditron-opt %s --pass-pipeline='builtin.module(ll-protocol{protocol=ll64})' 2>&1 | filecheck %s
// RUN: not ditron-opt %s --pass-pipeline='builtin.module(ll-protocol{max-bytes=-5})' 2>&1 | filecheck %s --check-prefix=BYTES

// BYTES: error: option 'max-bytes' of 'll-protocol': expected 0 or more, got -5: largest message, in bytes, that auto sends as packets
// CHECK: error: option 'protocol' of 'll-protocol': expected auto, ll, ll128 or simple, got 'll64'
module {}
