// RUN: ditron-opt %s --verify-diagnostics --split-input-file

// expected-error@+2 {{expected one of [simple, ll, ll128] for how data and its signal travel, got: ll64}}
// expected-error@+1 {{failed to parse}}
func.func @protocol() attributes {p = #ditron.protocol<ll64>} { return }

// -----

func.func @an_integer_is_no_scope(%p: !tt.ptr<i32>) {
  // expected-error@+1 {{invalid properties}}
  %0 = "ditron.ld"(%p) <{scope = 1 : i32, semantic = #ditron.semantic<relaxed>}> : (!tt.ptr<i32>) -> i32
  return
}

// -----

// expected-error@+1 {{unknown  type `flag` in dialect `ditron`}}
func.func @no_such_type(%t: !ditron.flag) { return }

// -----

func.func @no_such_operation() {
  // expected-error@+1 {{custom op 'ditron.broadcast' is unknown}}
  ditron.broadcast
  return
}
