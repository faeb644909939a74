// RUN: ditron-opt %s --verify-diagnostics --split-input-file

// expected-error@+1 {{'ditron.epoch' op expected to be in a ditron.program: it is an operation of the host}}
%0 = ditron.epoch

// -----

func.func @kernels_queue_nothing() {
  // expected-error@+1 {{'ditron.stream_barrier' op expected to be in a ditron.program: it is an operation of the host}}
  ditron.stream_barrier
  return
}

// -----

ditron.program @programs_do_not_notify() {
  // expected-error@+1 {{'ditron.fence' op is an operation of kernels and cannot stand in a ditron.program; put it in a kernel and launch that}}
  ditron.fence
}

// -----

ditron.program @programs_are_not_triton() {
  // expected-error@+1 {{'tt.get_program_id' op is an operation of kernels and cannot stand in a ditron.program; put it in a kernel and launch that}}
  %0 = tt.get_program_id x : i32
}

// -----

// expected-error@+1 {{'ditron.program' op expected argument 'p' to be a buffer, an integer or a float, got '!tt.ptr<i64>'}}
ditron.program @pointers_are_for_kernels(%p: !tt.ptr<i64>) {
}

// -----

// expected-error@+1 {{'ditron.program' op expected a name for each of its 1 arguments, got 0}}
"ditron.program"() <{sym_name = "p", arg_names = []}> ({
^bb0(%a: i32):
}) : () -> ()

// -----

// expected-error@+1 {{'ditron.program' op expected names of arguments that differ and are not empty, got 'a'}}
"ditron.program"() <{sym_name = "p", arg_names = ["a", "a"]}> ({
^bb0(%a: i32, %b: i32):
}) : () -> ()

// -----

func.func @outside(%x: i64) {
  // expected-error@+1 {{'ditron.program' op symbol's parent must have the SymbolTable trait}}
  ditron.program @in_a_function() {
  }
  return
}

// -----

ditron.program @two_of_one_name() {
  // expected-note@+1 {{first here}}
  %0 = ditron.alloc "a" [1] : !ditron.buffer<1xf32>
  // expected-error@+1 {{'ditron.alloc' op expected a label of its own, got "a" again}}
  %1 = ditron.alloc "a" [2] : !ditron.buffer<2xf32>
}

// -----

ditron.program @no_name() {
  // expected-error@+1 {{'ditron.alloc' op expected a label that names the memory in reports}}
  %0 = ditron.alloc "" [1] : !ditron.buffer<1xf32>
}

// -----

ditron.program @alloc_in_a_loop(%n: i64) {
  scf.for %i = %n to %n step %n : i64 {
    // expected-error@+1 {{'ditron.alloc' op expects parent op 'ditron.program'}}
    %0 = ditron.alloc "a" [1] : !ditron.buffer<1xf32>
  }
}

// -----

ditron.program @too_few_sizes() {
  // expected-error@+1 {{'ditron.alloc' op expected 2 sizes, one for each dimension of the result, got 1}}
  %0 = ditron.alloc "a" [1] : !ditron.buffer<1x1xf32>
}

// -----

ditron.program @size_and_type_differ() {
  // expected-error@+1 {{'ditron.alloc' op expected size 4 in dimension 0, as the result's type says, got 3}}
  %0 = ditron.alloc "a" [3] : !ditron.buffer<4xf32>
}

// -----

ditron.program @type_knows_too_much(%n: i64) {
  // expected-error@+1 {{'ditron.alloc' op expected size 4 in dimension 1, as the result's type says, got a value; write '?' in the type}}
  %0 = ditron.alloc "a" [1, %n] : !ditron.buffer<?x4xf32>
}

// -----

ditron.program @negative_size() {
  %n = arith.constant -2 : i64
  // expected-error@+1 {{'ditron.alloc' op expected sizes to be 0 or more, got constant -2}}
  %0 = ditron.alloc "a" [%n] : !ditron.buffer<?xf32>
}

// -----

ditron.program @sizes_without_values() {
  // expected-error@+1 {{'ditron.alloc' op expected a value for each size that is not known, 1 in all, got 0}}
  %0 = "ditron.alloc"() <{label = "a", static_sizes = array<i64: -9223372036854775808>}> : () -> !ditron.buffer<?xf32>
}

// -----

ditron.program @no_such_dimension(%a: !ditron.buffer<?x?xf32>) {
  // expected-error@+1 {{'ditron.dim' op expected the dimension to be in [0, 2), got 2}}
  %0 = ditron.dim %a[2] : !ditron.buffer<?x?xf32>
}

// -----

ditron.program @no_such_stride(%a: !ditron.buffer<?x?xf32>) {
  // expected-error@+1 {{'ditron.stride' op expected the dimension to be in [0, 2), got -1}}
  %0 = ditron.stride %a[-1] : !ditron.buffer<?x?xf32>
}

// -----

ditron.program @slice_changes_memory(%a: !ditron.buffer<4xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected the element type and the memory space of the source in the result, got '!ditron.buffer<4xf32>' and '!ditron.buffer<2xf32, symmetric>'}}
  %0 = ditron.slice %a[0] [2] : !ditron.buffer<4xf32> to !ditron.buffer<2xf32, symmetric>
}

// -----

ditron.program @slice_of_half_the_dimensions(%a: !ditron.buffer<4x4xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected 2 offsets and sizes, one for each dimension of the source, got 1 and 2}}
  %0 = ditron.slice %a[0] [2, 2] : !ditron.buffer<4x4xf32> to !ditron.buffer<2x2xf32>
}

// -----

ditron.program @slice_adds_dimensions(%a: !ditron.buffer<4xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected the result to have at most the 1 dimensions of the source, got 2}}
  %0 = ditron.slice %a[0] [2] : !ditron.buffer<4xf32> to !ditron.buffer<1x2xf32>
}

// -----

ditron.program @slice_drops_more_than_one(%a: !ditron.buffer<4x4xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected size 1 in dimension 0 of the source, which the result has not}}
  %0 = ditron.slice %a[0, 0] [2, 4] : !ditron.buffer<4x4xf32> to !ditron.buffer<4xf32>
}

// -----

ditron.program @slice_begins_before(%a: !ditron.buffer<?xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected offsets to be 0 or more, got constant -1}}
  %0 = ditron.slice %a[-1] [2] : !ditron.buffer<?xf32> to !ditron.buffer<2xf32>
}

// -----

ditron.program @slice_ends_beyond(%a: !ditron.buffer<4xf32>) {
  // expected-error@+1 {{'ditron.slice' op expected elements of the source, which has 4 in dimension 0, got 2 from 3}}
  %0 = ditron.slice %a[3] [2] : !ditron.buffer<4xf32> to !ditron.buffer<2xf32>
}

// -----

ditron.program @one_main_stream(%i: i64) {
  // expected-error@+1 {{'ditron.stream' op expected a label for streams that have an index: the program is called on one stream}}
  %0 = ditron.stream[%i]
}

// -----

// expected-error@+1 {{expected the element type of a buffer to be an integer or a float, got '!tt.ptr<i8>'}}
ditron.program @buffer_of_pointers(%a: !ditron.buffer<4x!tt.ptr<i8>>) {
}

// -----

// expected-error@+1 {{expected one of [local, symmetric] for who can reach a buffer, got: shared}}
ditron.program @no_such_space(%a: !ditron.buffer<4xf32, shared>) {
}
