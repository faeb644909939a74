// RUN: ditron-opt %s --pass-pipeline='builtin.module(insert-swizzle{mode=zigzag})' --verify-diagnostics

// expected-error@+1 {{option 'mode' of 'insert-swizzle': expected auto, gather or scatter, got 'zigzag'}}
module {
}
