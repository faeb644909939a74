// RUN: ditron-opt %s --pass-pipeline='builtin.module(raise-primitives)' --split-input-file --verify-diagnostics

tt.func public @no_prefix() {
  // expected-error@+1 {{expected the symbol of a primitive to be 'ditron.<operation>', got 'rank'}}
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "rank"} : () -> i32
  tt.return
}

// -----

tt.func public @unknown_operation() {
  // expected-error@+1 {{'ditron.teleport' is not an operation of the dialect}}
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "", pure = true, symbol = "ditron.teleport"} : () -> i32
  tt.return
}

// -----

tt.func public @malformed_attributes() {
  // expected-error@+1 {{expected the attribute dictionary of 'ditron.rank', got 'team = node'}}
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "team = node", pure = true, symbol = "ditron.rank"} : () -> i32
  tt.return
}

// -----

tt.func public @not_a_dictionary() {
  // expected-error@+1 {{expected the attribute dictionary of 'ditron.rank', got '3 : i32'}}
  %rank = tt.extern_elementwise {libname = "ditron", libpath = "3 : i32", pure = true, symbol = "ditron.rank"} : () -> i32
  tt.return
}

// -----

tt.func public @no_token(%n: i32, %v: i64) -> i32 {
  // expected-error@+1 {{'ditron.consume_token' expected a token made by 'ditron.wait' on every path to here, got a value of type i32}}
  %m = tt.extern_elementwise %v, %n {libname = "ditron", libpath = "", pure = true, symbol = "ditron.consume_token"} : (i64, i32) -> i64
  tt.return %n : i32
}

// -----

tt.func public @token_as_number(%sig: !tt.ptr<i64>, %n: i32, %v: i64) {
  %t = tt.extern_elementwise %sig, %n, %v {libname = "ditron", libpath = "", pure = false, symbol = "ditron.wait"} : (!tt.ptr<i64>, i32, i64) -> i32
  // expected-error@+1 {{expected a token to be consumed by 'ditron.consume_token', got a use by 'tt.addptr'}}
  %q = tt.addptr %sig, %t : !tt.ptr<i64>, i32
  tt.return
}

// -----

tt.func public @result_of_nothing() -> i32 {
  // expected-error@+1 {{'ditron.fence' has no result, but a result is used}}
  %f = tt.extern_elementwise {libname = "ditron", libpath = "{void}", pure = false, symbol = "ditron.fence"} : () -> i32
  tt.return %f : i32
}

// -----

tt.func private @called() attributes {noinline = true} {
  // expected-error@+1 {{'ditron.fence' in a function that is not inlined, which has no group}}
  %f = tt.extern_elementwise {libname = "ditron", libpath = "{void}", pure = false, symbol = "ditron.fence"} : () -> i32
  tt.return
}
