// RUN: not ditron-opt %s --pass-pipeline='builtin.module(ll-protocol{protocol=ll64})' 2>&1 | filecheck %s

// CHECK: error: expected protocol auto, ll, ll128 or simple, got 'll64'
module {}
