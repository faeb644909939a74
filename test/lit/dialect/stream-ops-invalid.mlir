// RUN: ditron-opt %s --verify-diagnostics --split-input-file

ditron.program @push_to_local(%a: !ditron.buffer<4xf32>, %peer: i64) {
  // expected-error@+1 {{'ditron.rank_copy' op expected dst to be symmetric, because it is the peer's, got '!ditron.buffer<4xf32>'}}
  ditron.rank_copy %a to %a on %peer : <4xf32> to <4xf32>
}

// -----

ditron.program @pull_from_local(%a: !ditron.buffer<4xf32>, %s: !ditron.buffer<4xf32, symmetric>, %peer: i64) {
  // expected-error@+1 {{'ditron.rank_copy' op expected src to be symmetric, because it is the peer's, got '!ditron.buffer<4xf32>'}}
  ditron.rank_copy %a on %peer to %s : <4xf32> to <4xf32, symmetric>
}

// -----

ditron.program @other_elements(%a: !ditron.buffer<4xf32>, %s: !ditron.buffer<4xf16, symmetric>, %peer: i64) {
  // expected-error@+1 {{'ditron.rank_copy' op expected src and dst to have the same element type, got 'f32' and 'f16'}}
  ditron.rank_copy %a to %s on %peer : <4xf32> to <4xf16, symmetric>
}

// -----

ditron.program @other_rank(%a: !ditron.buffer<?xf32>, %s: !ditron.buffer<?x?xf32, symmetric>, %peer: i64) {
  // expected-error@+1 {{'ditron.rank_copy' op expected src and dst to have the same shape, got '!ditron.buffer<?xf32>' and '!ditron.buffer<?x?xf32, symmetric>'}}
  ditron.rank_copy %a to %s on %peer : <?xf32> to <?x?xf32, symmetric>
}

// -----

ditron.program @other_size(%a: !ditron.buffer<4xf32>, %b: !ditron.buffer<5xf32>) {
  // expected-error@+1 {{'ditron.copy' op expected src and dst to have the same shape, got '!ditron.buffer<4xf32>' and '!ditron.buffer<5xf32>'}}
  ditron.copy %a to %b : <4xf32> to <5xf32>
}

// -----

ditron.program @nobody(%s: !ditron.buffer<4xf32, symmetric>) {
  %peer = arith.constant -1 : i64
  // expected-error@+1 {{'ditron.rank_copy' op expected rank to be in [0, num_ranks), got constant -1}}
  ditron.rank_copy %s to %s on %peer : <4xf32, symmetric> to <4xf32, symmetric>
}

// -----

ditron.program @fill_with_another_type(%a: !ditron.buffer<4xf32>, %zero: i32) {
  // expected-error@+1 {{'ditron.fill' op failed to verify that 'value' has the element type of 'dst'}}
  "ditron.fill"(%a, %zero) : (!ditron.buffer<4xf32>, i32) -> ()
}

// -----

ditron.program @local_signal(%sig: !ditron.buffer<4xi64>, %v: i64) {
  // expected-error@+1 {{operand #0 must be buffer of signals, !ditron.buffer<shape x i64, symmetric>, but got '!ditron.buffer<4xi64>'}}
  ditron.signal_wait %sig[0] ge %v : <4xi64>
}

// -----

ditron.program @narrow_signal(%sig: !ditron.buffer<4xi32, symmetric>, %v: i64) {
  // expected-error@+1 {{operand #0 must be buffer of signals, !ditron.buffer<shape x i64, symmetric>, but got '!ditron.buffer<4xi32, symmetric>'}}
  ditron.signal_write %sig[0] set %v on %v : <4xi32, symmetric>
}

// -----

ditron.program @many_signals_at_once(%sig: !ditron.buffer<4x4xi64, symmetric>, %v: i64) {
  // expected-error@+1 {{'ditron.signal_wait' op expected 2 indices, one for each dimension of '!ditron.buffer<4x4xi64, symmetric>', because it is about one signal, got 1}}
  ditron.signal_wait %sig[0] ge %v : <4x4xi64, symmetric>
}

// -----

ditron.program @signal_beyond(%sig: !ditron.buffer<4xi64, symmetric>, %v: i64) {
  // expected-error@+1 {{'ditron.signal_write' op expected an index of '!ditron.buffer<4xi64, symmetric>', got constant 4 in dimension 0}}
  ditron.signal_write %sig[4] set %v on %v : <4xi64, symmetric>
}

// -----

ditron.program @signal_before(%sig: !ditron.buffer<?xi64, symmetric>, %v: i64) {
  // expected-error@+1 {{'ditron.signal_wait' op expected an index of '!ditron.buffer<?xi64, symmetric>', got constant -1 in dimension 0}}
  ditron.signal_wait %sig[-1] ge %v : <?xi64, symmetric>
}

// -----

ditron.program @signal_for_nobody(%sig: !ditron.buffer<?xi64, symmetric>, %v: i64) {
  %peer = arith.constant -3 : i64
  // expected-error@+1 {{'ditron.signal_write' op expected rank to be in [0, num_ranks), got constant -3}}
  ditron.signal_write %sig[0] set %v on %peer : <?xi64, symmetric>
}

// -----

ditron.program @gather_into_local(%a: !ditron.buffer<?xf32>, %sig: !ditron.buffer<?xi64, symmetric>, %e: i64) {
  // expected-error@+1 {{'ditron.all_gather' op expected dst to be symmetric, because every rank writes there, got '!ditron.buffer<?xf32>'}}
  ditron.all_gather %a into %a signal %sig at %e : <?xf32>, <?xf32>, <?xi64, symmetric>
}

// -----

ditron.program @gather_other_columns(%a: !ditron.buffer<?x4xf32>, %d: !ditron.buffer<?x5xf32, symmetric>, %sig: !ditron.buffer<?xi64, symmetric>, %e: i64) {
  // expected-error@+1 {{'ditron.all_gather' op expected dst to have the element type of src, and its sizes but for the first dimension, got '!ditron.buffer<?x4xf32>' and '!ditron.buffer<?x5xf32, symmetric>'}}
  ditron.all_gather %a into %d signal %sig at %e : <?x4xf32>, <?x5xf32, symmetric>, <?xi64, symmetric>
}

// -----

ditron.program @gather_with_a_table(%a: !ditron.buffer<?xf32>, %d: !ditron.buffer<?xf32, symmetric>, %sig: !ditron.buffer<?x?xi64, symmetric>, %e: i64) {
  // expected-error@+1 {{'ditron.all_gather' op expected one signal for each rank, in a buffer of one dimension, got '!ditron.buffer<?x?xi64, symmetric>'}}
  ditron.all_gather %a into %d signal %sig at %e : <?xf32>, <?xf32, symmetric>, <?x?xi64, symmetric>
}

// -----

ditron.program @no_kernel() {
  // expected-error@+1 {{'ditron.launch' op expected @gemm to be a tt.func of the module, which has nothing of that name}}
  ditron.launch @gemm grid(1) ()
}

// -----

ditron.program @other() {
}
ditron.program @programs_are_not_launched() {
  // expected-error@+1 {{'ditron.launch' op expected @other to be a tt.func of the module, which it is not}}
  ditron.launch @other grid(1) ()
}

// -----

// expected-note@+1 {{the kernel}}
tt.func @k(%n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  tt.return
}
ditron.program @too_many(%n: i32, %s: !ditron.buffer<4xi64>) {
  // expected-error@+1 {{'ditron.launch' op expected 1 arguments for @k, got 2}}
  ditron.launch @k grid(1) (%n, %s) : (i32, !ditron.buffer<4xi64>)
}

// -----

// expected-note@+1 {{the kernel}}
tt.func @k(%p: !tt.ptr<bf16>) {
  tt.return
}
ditron.program @other_elements(%s: !ditron.buffer<4xf16>) {
  // expected-error@+1 {{'ditron.launch' op expected argument 0 of @k to be for '!tt.ptr<bf16>', got '!ditron.buffer<4xf16>'}}
  ditron.launch @k grid(1) (%s) : (!ditron.buffer<4xf16>)
}

// -----

// expected-note@+1 {{the kernel}}
tt.func @k(%n: i32) {
  tt.return
}
ditron.program @wider_number(%n: i64) {
  // expected-error@+1 {{'ditron.launch' op expected argument 0 of @k to be for 'i32', got 'i64'}}
  ditron.launch @k grid(1) (%n) : (i64)
}

// -----

tt.func @k() {
  tt.return
}
ditron.program @four_numbers() {
  // expected-error@+1 {{'ditron.launch' op expected a grid of 1 to 3 numbers, got 4}}
  ditron.launch @k grid(1, 1, 1, 1) ()
}

// -----

tt.func @k() {
  tt.return
}
ditron.program @negative_grid() {
  // expected-error@+1 {{'ditron.launch' op expected the grid's numbers to be 0 or more, got constant -1}}
  ditron.launch @k grid(-1) ()
}
