// RUN: ditron-opt %s --eliminate-copies --verify-diagnostics --split-input-file | filecheck %s

// Copies that have to be kept, each with the reason.

tt.func @update(%a: !tt.ptr<f32>, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @the_source_changes_before_it_is_read
// CHECK: ditron.copy
ditron.program @the_source_changes_before_it_is_read(%new: !ditron.buffer<4xf32>, %state: !ditron.buffer<4xf32>, %out: !ditron.buffer<4xf32>) {
  %old = ditron.alloc "old" [4] : <4xf32>
  // expected-remark@+1 {{copy kept: 'state' is overwritten before its last read; 'state' is an argument, which the program has not written}}
  ditron.copy %state to %old : <4xf32> to <4xf32>
  // expected-note@+1 {{here}}
  ditron.launch @update grid(1) (%new, %state) : (!ditron.buffer<4xf32>, !ditron.buffer<4xf32>)
  ditron.launch @update grid(1) (%old, %out) : (!ditron.buffer<4xf32>, !ditron.buffer<4xf32>)
}

// -----

tt.func @sum(%a: !tt.ptr<f32>, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @peers_are_told_that_the_inbox_is_free
// CHECK: ditron.copy
ditron.program @peers_are_told_that_the_inbox_is_free(%a: !ditron.buffer<4xf32>, %out: !ditron.buffer<4xf32>) {
  %one = arith.constant 1 : i64
  %epoch = ditron.epoch
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %up = arith.addi %rank, %one : i64
  %right = arith.remsi %up, %ranks : i64
  %inbox = ditron.alloc "inbox" [4] : <4xf32, symmetric>
  %full = ditron.alloc "full" [1] zeroed : <1xi64, symmetric>
  %free = ditron.alloc "free" [1] zeroed : <1xi64, symmetric>
  %mine = ditron.alloc "mine" [4] : <4xf32>
  // expected-note@+1 {{here}}
  ditron.rank_copy %a to %inbox on %right : <4xf32> to <4xf32, symmetric>
  ditron.signal_write %full[0] set %epoch on %right : <1xi64, symmetric>
  ditron.signal_wait %full[0] ge %epoch : <1xi64, symmetric>
  // expected-remark@+1 {{copy kept: peers write 'inbox', and may be signaled before its last read; peers write 'inbox'}}
  ditron.copy %inbox to %mine : <4xf32, symmetric> to <4xf32>
  // expected-note@+1 {{here}}
  ditron.signal_write %free[0] set %epoch on %right : <1xi64, symmetric>
  ditron.launch @sum grid(1) (%mine, %out) : (!ditron.buffer<4xf32>, !ditron.buffer<4xf32>)
}

// -----

tt.func @sum(%a: !tt.ptr<f32>, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @one_kernel_reads_all_shards
// CHECK: ditron.copy
ditron.program @one_kernel_reads_all_shards(%a: !ditron.buffer<4xf32>, %out: !ditron.buffer<4xf32>) {
  %four = arith.constant 4 : i64
  %r = ditron.rank
  %rank = arith.extsi %r : i32 to i64
  %n = ditron.num_ranks
  %ranks = arith.extsi %n : i32 to i64
  %m = arith.muli %ranks, %four : i64
  %all = ditron.alloc "all" [%m] : <?xf32, symmetric>
  %first = arith.muli %rank, %four : i64
  %own = ditron.slice %all[%first] [4] : <?xf32, symmetric> to <4xf32, symmetric>
  // expected-remark@+1 {{copy kept: a read of 'all' covers more than the copy wrote; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %own : <4xf32> to <4xf32, symmetric>
  // expected-note@+1 {{here}}
  ditron.launch @sum grid(1) (%all, %out) : (!ditron.buffer<?xf32, symmetric>, !ditron.buffer<4xf32>)
}

// -----

// CHECK-LABEL: @a_peer_writes_there_too
// CHECK: ditron.copy
ditron.program @a_peer_writes_there_too(%a: !ditron.buffer<4xf32>, %b: !ditron.buffer<4xf32>, %peer: i64, %out: !ditron.buffer<4xf32>) {
  %box = ditron.alloc "box" [4] : <4xf32, symmetric>
  // expected-remark@+1 {{copy kept: peers write the destination in 'box'; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %box : <4xf32> to <4xf32, symmetric>
  // expected-note@+1 {{here}}
  ditron.rank_copy %b to %box on %peer : <4xf32> to <4xf32, symmetric>
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; peers write 'box'}}
  ditron.copy %box to %out : <4xf32, symmetric> to <4xf32>
}

// -----

// Memory lives across calls: a read before the copy sees what the previous call left there.
// CHECK-LABEL: @read_before_it_is_written
// CHECK-COUNT-2: ditron.copy
ditron.program @read_before_it_is_written(%a: !ditron.buffer<4xf32>, %out: !ditron.buffer<4xf32>) {
  %last = ditron.alloc "last" [4] : <4xf32>
  // expected-note@+2 {{here}}
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; 'last' is not written before the copy in the same block}}
  ditron.copy %last to %out : <4xf32> to <4xf32>
  // expected-note@+2 {{here}}
  // expected-remark@+1 {{copy kept: 'last' is read where the copy does not dominate; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %last : <4xf32> to <4xf32>
}

// -----

// CHECK-LABEL: @filled_by_two
// CHECK-COUNT-2: ditron.copy
ditron.program @filled_by_two(%a: !ditron.buffer<4xf32>, %z: f32, %out: !ditron.buffer<4xf32>) {
  %x = ditron.alloc "x" [4] : <4xf32>
  // expected-note@+1 {{here}}
  ditron.fill %x, %z : <4xf32>
  // expected-remark@+1 {{copy kept: another operation writes the destination in 'x'; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %x : <4xf32> to <4xf32>
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; 2 operations write 'x'}}
  ditron.copy %x to %out : <4xf32> to <4xf32>
}

// -----

tt.func @accumulate(%a: !tt.ptr<f32>, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  "tt.unheard_of"(%c, %x) : (!tt.ptr<f32>, f32) -> ()
  tt.return
}
// A kernel may do anything with a pointer.
// CHECK-LABEL: @a_kernel_may_read_what_it_writes
// CHECK: ditron.copy
ditron.program @a_kernel_may_read_what_it_writes(%a: !ditron.buffer<4xf32>, %out: !ditron.buffer<4xf32>) {
  %sum = ditron.alloc "sum" [4] : <4xf32>
  // expected-note@+1 {{here}}
  ditron.launch @accumulate grid(1) (%a, %sum) : (!ditron.buffer<4xf32>, !ditron.buffer<4xf32>)
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; another operation reads 'sum'}}
  ditron.copy %sum to %out : <4xf32> to <4xf32>
}

// -----

tt.func @some(%c: !tt.ptr<f32>) {
  %x = arith.constant 1.0 : f32
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @zeros_between
// CHECK: ditron.copy
ditron.program @zeros_between(%out: !ditron.buffer<4xf32>) {
  %x = ditron.alloc "x" [4] zeroed : <4xf32>
  // expected-note@+1 {{here}}
  ditron.launch @some grid(1) (%x) : (!ditron.buffer<4xf32>)
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; 'x' is zero-initialized, and the kernel may not overwrite all of it}}
  ditron.copy %x to %out : <4xf32> to <4xf32>
}

// -----

// CHECK-LABEL: @the_destination_is_read_in_between
// CHECK: ditron.copy
ditron.program @the_destination_is_read_in_between(%z: f32, %peer: i64, %out: !ditron.buffer<4xf32>) {
  %x = ditron.alloc "x" [4] : <4xf32>
  %box = ditron.alloc "box" [4] : <4xf32, symmetric>
  ditron.fill %x, %z : <4xf32>
  // expected-note@+1 {{here}}
  ditron.rank_copy %out to %box on %peer : <4xf32> to <4xf32, symmetric>
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; the destination in 'out' is accessed before the copy}}
  ditron.copy %x to %out : <4xf32> to <4xf32>
}

// -----

// CHECK-LABEL: @the_destination_is_awaited_in_between
// CHECK: ditron.copy
ditron.program @the_destination_is_awaited_in_between(%z: f32, %peer: i64, %out: !ditron.buffer<4xf32>) {
  %side = ditron.stream "side"
  %x = ditron.alloc "x" [4] : <4xf32>
  %box = ditron.alloc "box" [4] : <4xf32, symmetric>
  ditron.rank_copy %out to %box on %peer stream %side : <4xf32> to <4xf32, symmetric>
  %sent = ditron.record stream %side
  ditron.fill %x, %z : <4xf32>
  // expected-note@+1 {{here}}
  ditron.await %sent
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; the destination in 'out' is accessed on another stream, which is awaited only right before the copy}}
  ditron.copy %x to %out : <4xf32> to <4xf32>
}

// -----

tt.func @put(%x: !tt.ptr<f32>, %bytes: i64, %to: i32) {
  ditron.putmem %x, %x, %bytes on %to : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @a_kernel_of_a_peer_writes
// CHECK: ditron.copy
ditron.program @a_kernel_of_a_peer_writes(%a: !ditron.buffer<4xf32>, %bytes: i64, %to: i32) {
  %box = ditron.alloc "box" [4] : <4xf32, symmetric>
  // expected-remark@+1 {{copy kept: another operation writes the destination in 'box'; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %box : <4xf32> to <4xf32, symmetric>
  // expected-note@+1 {{here}}
  ditron.launch @put grid(1) (%box, %bytes, %to) : (!ditron.buffer<4xf32, symmetric>, i64, i32)
}

// -----

// A kernel specialised for addresses divisible by 16: that of the second half of %a is, if its rows are even, which is
// assumed in @aligned, and not in @perhaps_not.
module attributes {ditron.assumptions = {
    perhaps_not = {a = {align = 16 : i64, dense}},
    aligned = {a = {align = 16 : i64, dims = array<i64: 1, 16>, dense}}}} {
tt.func @read(%a: !tt.ptr<f32> {tt.divisibility = 16 : i32}, %c: !tt.ptr<f32>) {
  %x = tt.load %a : !tt.ptr<f32>
  tt.store %c, %x : !tt.ptr<f32>
  tt.return
}
// CHECK-LABEL: @perhaps_not
// CHECK: ditron.copy
ditron.program @perhaps_not(%a: !ditron.buffer<2x?xf32>, %out: !ditron.buffer<4xf32>) {
  %n = ditron.dim %a[1] : <2x?xf32>
  %x = ditron.alloc "x" [%n] : <?xf32>
  %half = ditron.slice %a[1, 0] [1, %n] : <2x?xf32> to <?xf32>
  // expected-remark@+1 {{copy kept: the kernel assumes that the address is divisible by 16; 'a' is an argument, which the program has not written}}
  ditron.copy %half to %x : <?xf32> to <?xf32>
  // expected-note@+1 {{here}}
  ditron.launch @read grid(1) (%x, %out) : (!ditron.buffer<?xf32>, !ditron.buffer<4xf32>)
}
// CHECK-LABEL: @aligned
// CHECK-NOT: ditron.copy
// CHECK: ditron.launch @read grid(1) (%slice, %out)
ditron.program @aligned(%a: !ditron.buffer<2x?xf32>, %out: !ditron.buffer<4xf32>) {
  %n = ditron.dim %a[1] : <2x?xf32>
  %x = ditron.alloc "x" [%n] : <?xf32>
  %half = ditron.slice %a[1, 0] [1, %n] : <2x?xf32> to <?xf32>
  ditron.copy %half to %x : <?xf32> to <?xf32>
  ditron.launch @read grid(1) (%x, %out) : (!ditron.buffer<?xf32>, !ditron.buffer<4xf32>)
}
}

// -----

tt.func @load_block(%a: !tt.tensordesc<tensor<8xf32>>, %n: i32, %s: i64, %c: !tt.ptr<f32>) {
  %zero = arith.constant 0 : i32
  %x = tt.descriptor_load %a[%zero] : !tt.tensordesc<tensor<8xf32>> -> tensor<8xf32>
  tt.return
}
tt.func @store_block(%a: !tt.tensordesc<tensor<8xf32>>, %n: i32, %s: i64) {
  %zero = arith.constant 0 : i32
  %x = arith.constant dense<1.0> : tensor<8xf32>
  tt.descriptor_store %a[%zero], %x : !tt.tensordesc<tensor<8xf32>>, tensor<8xf32>
  tt.return
}
// A descriptor has its buffer's address and strides: it is not given another one.
// CHECK-LABEL: @descriptors_of_a_copy
// CHECK-COUNT-2: ditron.copy
ditron.program @descriptors_of_a_copy(%a: !ditron.buffer<8xf32>, %out: !ditron.buffer<8xf32>, %scratch: !ditron.buffer<8xf32>) {
  %n = arith.constant 8 : i32
  %one = arith.constant 1 : i64
  %copied = ditron.alloc "copied" [8] : <8xf32>
  // expected-remark@+1 {{copy kept: 'copied' is read by a tensor descriptor, whose strides are those of 'copied'; 'a' is an argument, which the program has not written}}
  ditron.copy %a to %copied : <8xf32> to <8xf32>
  %from = ditron.tensor_descriptor %copied sizes [8] strides [1] : <8xf32> to !tt.tensordesc<tensor<8xf32>>
  // expected-note@+1 {{here}}
  ditron.launch @load_block grid(1) (%from, %n, %one, %scratch) : (!tt.tensordesc<tensor<8xf32>>, i32, i64, !ditron.buffer<8xf32>)
  %made = ditron.alloc "made" [8] : <8xf32>
  %to = ditron.tensor_descriptor %made sizes [8] strides [1] : <8xf32> to !tt.tensordesc<tensor<8xf32>>
  // expected-note@+1 {{here}}
  ditron.launch @store_block grid(1) (%to, %n, %one) : (!tt.tensordesc<tensor<8xf32>>, i32, i64)
  // expected-remark@+1 {{copy kept: 'out' is an argument, which the caller reads after the program; 'made' is written by a tensor descriptor, whose strides are those of 'made'}}
  ditron.copy %made to %out : <8xf32> to <8xf32>
}
