// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @negative_byte_count(%d: !tt.ptr<f16>, %r: i32) {
  %n = arith.constant -4 : i64
  // expected-error@+1 {{'ditron.putmem' op expected nbytes to be 0 or more, got constant -4}}
  ditron.putmem %d, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @odd_byte_count(%d: !tt.ptr<f16>, %r: i32) {
  %n = arith.constant 7 : i64
  // expected-error@+1 {{'ditron.putmem' op expected nbytes to be a multiple of 2, the bytes of one 'f16', got constant 7}}
  ditron.putmem %d, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @half_a_pointer(%d: !tt.ptr<!tt.ptr<f16>>, %r: i32) {
  %n = arith.constant 4 : i64
  // expected-error@+1 {{'ditron.getmem' op expected nbytes to be a multiple of 8, the bytes of one '!tt.ptr<f16>', got constant 4}}
  ditron.getmem %d, %d, %n on %r : !tt.ptr<!tt.ptr<f16>>, !tt.ptr<!tt.ptr<f16>>
  return
}

// -----

func.func @two_element_types(%d: !tt.ptr<f16>, %s: !tt.ptr<f32>, %n: i64, %r: i32) {
  // expected-error@+1 {{'ditron.putmem' op expected dst and src to point to the same type, got 'f16' and 'f32'}}
  ditron.putmem %d, %s, %n on %r : !tt.ptr<f16>, !tt.ptr<f32>
  return
}

// -----

func.func @put_tensor_of_pointers(%d: tensor<4x!tt.ptr<f16>>, %n: i64, %r: i32) {
  // expected-error@+1 {{operand #0 must be pointer, !tt.ptr<T>, but got 'tensor<4x!tt.ptr<f16>>'}}
  "ditron.putmem"(%d, %d, %n, %r) : (tensor<4x!tt.ptr<f16>>, tensor<4x!tt.ptr<f16>>, i64, i32) -> ()
  return
}

// -----

func.func @put_to_nobody(%d: !tt.ptr<f16>, %n: i64) {
  %r = arith.constant -1 : i32
  // expected-error@+1 {{'ditron.putmem' op expected rank to be in [0, num_ranks), got constant -1}}
  ditron.putmem %d, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @putmem_translates_dst(%d: !tt.ptr<f16>, %n: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %d on %r : !tt.ptr<f16>
  // expected-error@+1 {{'ditron.putmem' op expected dst to be this rank's own symmetric address}}
  ditron.putmem %peer, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @getmem_translates_src(%d: !tt.ptr<f16>, %n: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %d on %r : !tt.ptr<f16>
  // expected-error@+1 {{'ditron.getmem' op expected src to be this rank's own symmetric address}}
  ditron.getmem %d, %peer, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @getmem_from_nobody(%d: !tt.ptr<f16>, %n: i64) {
  %r = arith.constant -2 : i32
  // expected-error@+1 {{'ditron.getmem' op expected rank to be in [0, num_ranks), got constant -2}}
  ditron.getmem %d, %d, %n on %r : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @unknown_granularity(%d: !tt.ptr<f16>, %n: i64, %r: i32) {
  // expected-error@+1 {{expected one of [thread, warp, block] for threads that share one transfer, got: grid}}
  ditron.getmem %d, %d, %n on %r granularity grid : !tt.ptr<f16>, !tt.ptr<f16>
  return
}

// -----

func.func @put_with_narrow_signal(%d: !tt.ptr<f16>, %n: i64, %sig: !tt.ptr<i32>, %r: i32) {
  // expected-error@+1 {{'ditron.putmem_signal' op operand #3 must be signal pointer, !tt.ptr<i64>}}
  "ditron.putmem_signal"(%d, %d, %n, %sig, %n, %r) : (!tt.ptr<f16>, !tt.ptr<f16>, i64, !tt.ptr<i32>, i64, i32) -> ()
  return
}

// -----

func.func @put_with_signal_odd_count(%d: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %r: i32) {
  %n = arith.constant 6 : i64
  // expected-error@+1 {{'ditron.putmem_signal' op expected nbytes to be a multiple of 4, the bytes of one 'f32', got constant 6}}
  ditron.putmem_signal %d, %d, %n, %sig set %n on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @put_with_signal_translates_dst(%d: !tt.ptr<f32>, %n: i64, %sig: !tt.ptr<i64>, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %d on %r : !tt.ptr<f32>
  // expected-error@+1 {{expected dst to be this rank's own symmetric address}}
  ditron.putmem_signal %peer, %d, %n, %sig set %n on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @put_with_signal_translates_sig(%d: !tt.ptr<f32>, %n: i64, %sig: !tt.ptr<i64>, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %sig on %r : !tt.ptr<i64>
  // expected-error@+1 {{expected signal to be this rank's own symmetric address}}
  ditron.putmem_signal %d, %d, %n, %peer set %n on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  return
}

// -----

func.func @barrier_of_unknown_team() {
  // expected-error@+1 {{expected one of [group, node, world]}}
  ditron.barrier team rack
  return
}

// -----

func.func @sync_of_unknown_team() {
  // expected-error@+1 {{expected one of [group, node, world]}}
  ditron.sync_all team rack
  return
}
