// RUN: ditron-opt %s --verify-diagnostics --split-input-file

func.func @lane_before_the_warp(%v: i32) {
  %l = arith.constant -1 : i32
  // expected-error@+1 {{'ditron.shfl' op expected lane to be in [0, 64), got constant -1}}
  %0 = ditron.shfl idx %v, %l : i32
  return
}

// -----

func.func @lane_beyond_the_widest_warp(%v: i32) {
  %l = arith.constant 64 : i32
  // expected-error@+1 {{'ditron.shfl' op expected lane to be in [0, 64), got constant 64}}
  %0 = ditron.shfl bfly %v, %l : i32
  return
}

// -----

func.func @unknown_mode(%v: i32, %l: i32) {
  // expected-error@+1 {{expected one of [idx, up, down, bfly] for which lane a value is read from, got: left}}
  %0 = ditron.shfl left %v, %l : i32
  return
}

// -----

func.func @shuffle_a_half(%v: f16, %l: i32) {
  // expected-error@+1 {{'ditron.shfl' op operand #0 must be 32-bit signless integer or 64-bit signless integer or 32-bit float, but got 'f16'}}
  %0 = ditron.shfl idx %v, %l : f16
  return
}

// -----

func.func @shuffle_changes_no_type(%v: i32, %l: i32) {
  // expected-error@+1 {{failed to verify that all of {value, result} have same type}}
  %0 = "ditron.shfl"(%v, %l) : (i32, i32) -> i64
  return
}

// -----

func.func @ballot_of_a_number(%v: i32) {
  // expected-error@+1 {{'ditron.ballot' op operand #0 must be 1-bit signless integer, but got 'i32'}}
  %0 = "ditron.ballot"(%v) : (i32) -> i64
  return
}

// -----

func.func @expected_too_often(%c: i1) {
  // expected-error@+1 {{'ditron.expect' op attribute 'probability' failed to satisfy constraint: 64-bit float attribute in [0, 1]}}
  %0 = ditron.expect %c, 1.5
  return
}

// -----

func.func @expected_number(%n: i32) {
  // expected-error@+1 {{'ditron.expect' op operand #0 must be 1-bit signless integer, but got 'i32'}}
  %0 = "ditron.expect"(%n) {probability = 0.5 : f64} : (i32) -> i1
  return
}

// -----

func.func @call_of_nothing() {
  // expected-error@+1 {{'ditron.extern_call' op attribute 'symbol' failed to satisfy constraint: string attribute that names the function to call, not an empty one}}
  ditron.extern_call ""() : () -> ()
  return
}

// -----

func.func @call_without_symbol() {
  // expected-error@+1 {{'ditron.extern_call' op requires attribute 'symbol'}}
  "ditron.extern_call"() : () -> ()
  return
}

// -----

func.func @pure_and_without_result(%v: i32) {
  // expected-error@+1 {{'ditron.extern_call' op expected a pure call to return something, because a pure call without a result is erased; drop 'pure'}}
  ditron.extern_call "f"(%v) pure : (i32) -> ()
  return
}

// -----

func.func @thread_id_is_i32() {
  // expected-error@+1 {{'ditron.thread_id' op result #0 must be 32-bit signless integer, but got 'i64'}}
  %0 = "ditron.thread_id"() : () -> i64
  return
}
