// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @no_flag(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i64, %r: i32) {
  // expected-error@+1 {{'ditron.ll_put' op expected protocol ll or ll128, got simple, whose data has no flag; use ditron.putmem_signal}}
  ditron.ll_put %packets, %p, %n, %n on %r protocol simple : !tt.ptr<i64>, !tt.ptr<f32>
  return
}

// -----

func.func @epoch_of_fresh_memory(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i64) {
  %epoch = arith.constant 0 : i64
  // expected-error@+1 {{'ditron.ll_get' op expected epoch to be 1 or more, because packet memory begins with flag 0, got constant 0}}
  %token = ditron.ll_get %p, %packets, %n, %epoch : !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @half_an_element(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %epoch: i64, %r: i32) {
  %n = arith.constant 6 : i64
  // expected-error@+1 {{'ditron.ll_put' op expected nbytes to be a multiple of 4, the bytes of one 'f32', got constant 6}}
  ditron.ll_put %packets, %p, %n, %epoch on %r : !tt.ptr<i64>, !tt.ptr<f32>
  return
}

// -----

func.func @negative_byte_count(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %epoch: i64) {
  %n = arith.constant -8 : i64
  // expected-error@+1 {{'ditron.ll_get' op expected nbytes to be 0 or more, got constant -8}}
  %token = ditron.ll_get %p, %packets, %n, %epoch : !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @no_such_rank(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i64) {
  %r = arith.constant -1 : i32
  // expected-error@+1 {{'ditron.ll_put' op expected rank to be in [0, num_ranks), got constant -1}}
  ditron.ll_put %packets, %p, %n, %n on %r : !tt.ptr<i64>, !tt.ptr<f32>
  return
}

// -----

func.func @translated_twice(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %there = ditron.symm_at %packets on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.ll_put' op expected packets to be this rank's own symmetric address, which the operation translates itself, got the result of 'ditron.symm_at'; pass its operand}}
  ditron.ll_put %there, %p, %n, %n on %r : !tt.ptr<i64>, !tt.ptr<f32>
  return
}

// -----

func.func @polls_a_peer(%packets: !tt.ptr<i64>, %p: !tt.ptr<f32>, %n: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %there = ditron.symm_at %packets on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.ll_get' op expected packets to be this rank's own symmetric address}}
  %token = ditron.ll_get %p, %there, %n, %n : !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @packets_are_words(%packets: !tt.ptr<i32>, %p: !tt.ptr<f32>, %n: i64, %r: i32) {
  // expected-error@+1 {{operand #0 must be packet pointer, !tt.ptr<i64> (packets are made of 8-byte words), but got '!tt.ptr<i32>'}}
  "ditron.ll_put"(%packets, %p, %n, %n, %r) : (!tt.ptr<i32>, !tt.ptr<f32>, i64, i64, i32) -> ()
  return
}
