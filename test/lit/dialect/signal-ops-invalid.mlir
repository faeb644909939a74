// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @wait_on_a_narrow_signal(%sig: !tt.ptr<i32>, %n: i32, %v: i64) {
  // expected-error@+1 {{'ditron.wait' op operand #0 must be signal pointer, !tt.ptr<i64> (signals are 64-bit epoch counters that only grow), but got '!tt.ptr<i32>'}}
  %0 = "ditron.wait"(%sig, %n, %v) : (!tt.ptr<i32>, i32, i64) -> !ditron.token
  return
}

// -----

func.func @wait_on_many_pointers(%sig: tensor<4x!tt.ptr<i64>>, %n: i32, %v: i64) {
  // expected-error@+1 {{operand #0 must be signal pointer, !tt.ptr<i64>}}
  %0 = "ditron.wait"(%sig, %n, %v) : (tensor<4x!tt.ptr<i64>>, i32, i64) -> !ditron.token
  return
}

// -----

func.func @wait_with_release(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  // expected-error@+1 {{'ditron.wait' op attribute 'semantic' failed to satisfy constraint: memory order of an atomic access that is relaxed or acquire, because this operation only reads; release belongs to the store or notify that publishes}}
  %0 = ditron.wait %sig[%n] ge %v semantic release : !tt.ptr<i64>
  return
}

// -----

func.func @wait_for_a_negative_count(%sig: !tt.ptr<i64>, %v: i64) {
  %n = arith.constant -3 : i32
  // expected-error@+1 {{'ditron.wait' op expected count to be 0 or more signals, got constant -3}}
  %0 = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  return
}

// -----

func.func @wait_returns_a_token(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  // expected-error@+1 {{'ditron.wait' op result #0 must be token that a ditron.wait returned, !ditron.token, but got 'i32'}}
  %0 = "ditron.wait"(%sig, %n, %v) : (!tt.ptr<i64>, i32, i64) -> i32
  return
}

// -----

func.func @consume_what_is_no_token(%p: !tt.ptr<f16>, %t: i32) {
  // expected-error@+1 {{'ditron.consume_token' op operand #1 must be token that a ditron.wait returned, !ditron.token, but got 'i32'}}
  %0 = "ditron.consume_token"(%p, %t) : (!tt.ptr<f16>, i32) -> !tt.ptr<f16>
  return
}

// -----

func.func @consume_changes_no_type(%p: !tt.ptr<f16>, %t: !ditron.token) {
  // expected-error@+1 {{failed to verify that all of {value, result} have same type}}
  %0 = "ditron.consume_token"(%p, %t) : (!tt.ptr<f16>, !ditron.token) -> !tt.ptr<f32>
  return
}

// -----

func.func @notify_a_narrow_signal(%sig: !tt.ptr<i32>, %v: i64, %r: i32) {
  // expected-error@+1 {{'ditron.notify' op operand #0 must be signal pointer, !tt.ptr<i64>}}
  "ditron.notify"(%sig, %v, %r) : (!tt.ptr<i32>, i64, i32) -> ()
  return
}

// -----

func.func @notify_nobody(%sig: !tt.ptr<i64>, %v: i64) {
  %r = arith.constant -1 : i32
  // expected-error@+1 {{'ditron.notify' op expected rank to be in [0, num_ranks), got constant -1}}
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @notify_another_gpu_at_gpu_scope(%sig: !tt.ptr<i64>, %v: i64) {
  %r = arith.constant 3 : i32
  // expected-error@+1 {{'ditron.notify' op expected scope node or world, because rank 3 is another GPU on every rank but one; scope gpu needs ditron.rank as rank}}
  ditron.notify %sig set %v on %r scope gpu : !tt.ptr<i64>
  return
}

// -----

func.func @notify_translates_itself(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %sig on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.notify' op expected signal to be this rank's own symmetric address, which the operation translates itself, got the result of 'ditron.symm_at'; pass its operand}}
  ditron.notify %peer set %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @notify_multicasts_nothing(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %mc = ditron.multicast_ptr %sig : !tt.ptr<i64>
  // expected-error@+1 {{got the result of 'ditron.multicast_ptr'}}
  ditron.notify %mc set %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @signal_nobody(%sig: !tt.ptr<i64>, %v: i64) {
  %r = arith.constant -7 : i32
  // expected-error@+1 {{'ditron.signal_op' op expected rank to be in [0, num_ranks), got constant -7}}
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @signal_op_translates_itself(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-note@+1 {{translated here}}
  %peer = ditron.symm_at %sig on %r : !tt.ptr<i64>
  // expected-error@+1 {{'ditron.signal_op' op expected signal to be this rank's own symmetric address}}
  ditron.signal_op %peer add %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @signal_op_knows_no_mul(%sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  // expected-error@+1 {{expected one of [set, add] for what a notifier does to a signal, got: mul}}
  ditron.signal_op %sig mul %v on %r : !tt.ptr<i64>
  return
}

// -----

func.func @signal_wait_until_on_float(%sig: !tt.ptr<f64>, %v: i64) {
  // expected-error@+1 {{'ditron.signal_wait_until' op operand #0 must be signal pointer, !tt.ptr<i64>}}
  %0 = "ditron.signal_wait_until"(%sig, %v) : (!tt.ptr<f64>, i64) -> i64
  return
}

// -----

func.func @signal_fetch_of_i32(%sig: !tt.ptr<i32>) {
  // expected-error@+1 {{'ditron.signal_fetch' op operand #0 must be signal pointer, !tt.ptr<i64>}}
  %0 = "ditron.signal_fetch"(%sig) : (!tt.ptr<i32>) -> i64
  return
}

// -----

func.func @signal_fetch_release(%sig: !tt.ptr<i64>) {
  // expected-error@+1 {{attribute 'semantic' failed to satisfy constraint: memory order of an atomic access that is relaxed or acquire, because this operation only reads}}
  %0 = ditron.signal_fetch %sig semantic release : !tt.ptr<i64>
  return
}
