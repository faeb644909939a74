// RUN: ditron-opt %s --verify-diagnostics --split-input-file

ditron.program @not_a_descriptor(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op result #0 must be tensor descriptor, !tt.tensordesc<...>, but got '!tt.ptr<f32>'}}
  %0 = ditron.tensor_descriptor %a sizes [8] strides [1] : !ditron.buffer<8xf32> to !tt.ptr<f32>
}

// -----

ditron.program @no_block(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected a block in the type of the result, as in !tt.tensordesc<tensor<16x64xbf16>>, got '!tt.tensordesc<8>'}}
  %0 = ditron.tensor_descriptor %a sizes [8] strides [1] : !ditron.buffer<8xf32> to !tt.tensordesc<8>
}

// -----

ditron.program @other_elements(%a: !ditron.buffer<8xf16>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected a block of the buffer's elements, 'f16', got 'tensor<8xbf16>'}}
  %0 = ditron.tensor_descriptor %a sizes [8] strides [1] : !ditron.buffer<8xf16> to !tt.tensordesc<tensor<8xbf16>>
}

// -----

ditron.program @six_dimensions(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected a block of 1 to 5 dimensions, got 'tensor<1x1x1x1x1x8xf32>'}}
  %0 = ditron.tensor_descriptor %a sizes [1, 1, 1, 1, 1, 8] strides [4, 4, 4, 4, 4, 1] : !ditron.buffer<8xf32> to !tt.tensordesc<tensor<1x1x1x1x1x8xf32>>
}

// -----

ditron.program @too_few_strides(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected 2 sizes and strides, one for each dimension of the block, got 2 and 1}}
  %0 = ditron.tensor_descriptor %a sizes [1, 8] strides [1] : !ditron.buffer<8xf32> to !tt.tensordesc<tensor<1x8xf32>>
}

// -----

ditron.program @a_value_is_missing(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected a value for each stride that is not known, 1 in all, got 0}}
  %0 = "ditron.tensor_descriptor"(%a) <{operandSegmentSizes = array<i32: 1, 0, 0>, static_sizes = array<i64: 8>, static_strides = array<i64: -9223372036854775808>}> : (!ditron.buffer<8xf32>) -> !tt.tensordesc<tensor<8xf32>>
}

// -----

ditron.program @no_elements(%a: !ditron.buffer<8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected sizes of at least 1, got constant 0}}
  %0 = ditron.tensor_descriptor %a sizes [0] strides [1] : !ditron.buffer<8xf32> to !tt.tensordesc<tensor<8xf32>>
}

// -----

ditron.program @not_contiguous(%a: !ditron.buffer<8x8xf32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected the last stride to be 1, got constant 8}}
  %0 = ditron.tensor_descriptor %a sizes [8, 8] strides [4, 8] : !ditron.buffer<8x8xf32> to !tt.tensordesc<tensor<8x8xf32>>
}

// -----

ditron.program @rows_of_six_bytes(%a: !ditron.buffer<8x3xbf16>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected strides of a multiple of 16 bytes, got 3 elements of 2}}
  %0 = ditron.tensor_descriptor %a sizes [8, 3] strides [3, 1] : !ditron.buffer<8x3xbf16> to !tt.tensordesc<tensor<8x8xbf16>>
}

// -----

ditron.program @no_nan_in_integers(%a: !ditron.buffer<8xi32>) {
  // expected-error@+1 {{'ditron.tensor_descriptor' op expected floats where NaN is outside, got 'i32'}}
  %0 = ditron.tensor_descriptor %a sizes [8] strides [1] nan_padding : !ditron.buffer<8xi32> to !tt.tensordesc<tensor<8xsi32>>
}

// -----

// expected-note@+1 {{the kernel}}
tt.func @k(%a: !tt.tensordesc<tensor<8xf32>>, %n: i32, %s: i64) {
  tt.return
}
ditron.program @a_buffer_is_no_descriptor(%a: !ditron.buffer<8xf32>, %n: i32, %s: i64) {
  // expected-error@+1 {{'ditron.launch' op expected argument 0 of @k to be for '!tt.tensordesc<tensor<8xf32>>', got '!ditron.buffer<8xf32>'}}
  ditron.launch @k grid(1) (%a, %n, %s) : (!ditron.buffer<8xf32>, i32, i64)
}

// -----

tt.func @k(%a: !tt.tensordesc<tensor<8xf32>>, %n: i32, %s: i64) {
  tt.return
}
ditron.program @which_descriptor(%a: !ditron.buffer<8xf32>, %c: i1, %n: i32, %s: i64) {
  %d = ditron.tensor_descriptor %a sizes [8] strides [1] : !ditron.buffer<8xf32> to !tt.tensordesc<tensor<8xf32>>
  %e = scf.if %c -> !tt.tensordesc<tensor<8xf32>> {
    scf.yield %d : !tt.tensordesc<tensor<8xf32>>
  } else {
    scf.yield %d : !tt.tensordesc<tensor<8xf32>>
  }
  // expected-error@+1 {{'ditron.launch' op expected argument 0, a descriptor, to be made by ditron.tensor_descriptor}}
  ditron.launch @k grid(1) (%e, %n, %s) : (!tt.tensordesc<tensor<8xf32>>, i32, i64)
}
