// RUN: ditron-opt %s --pass-pipeline='builtin.module(insert-swizzle{mode=zigzag})' --verify-diagnostics

// expected-error@+1 {{mode of 'insert-swizzle': expected one of auto, gather, scatter, got 'zigzag'}}
module {
}
