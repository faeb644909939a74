// What depends on floating-point data is an error at the line where the data becomes something else.
// RUN: ditron-opt %s --skeletonize --verify-diagnostics

tt.func public @branch(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %x = tt.load %p : !tt.ptr<f32>
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{what the kernel does depends on floating-point data, by the i1 that 'arith.cmpf' makes of it: timing-only mode computes no floating-point data: say how often a condition is true, by dl.expect(condition, probability), pass data as an integer tensor, or predict without --timing-only}}
  %positive = arith.cmpf ogt, %x, %zero : f32
  scf.if %positive {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

tt.func public @address(%p: !tt.ptr<f32>, %ids: !tt.ptr<i32>) {
  %x = tt.load %p : !tt.ptr<f32>
  // expected-error@+1 {{by the i32 that 'arith.fptosi' makes of it}}
  %i = arith.fptosi %x : f32 to i32
  %at = tt.addptr %ids, %i : !tt.ptr<i32>, i32
  tt.store %at, %i : !tt.ptr<i32>
  tt.return
}

// Through a loop, and of the number of its iterations.
tt.func public @iterations(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %steps = scf.for %i = %c0 to %n step %c1 iter_args(%count = %c0) -> (i32) : i32 {
    %x = tt.load %p : !tt.ptr<f32>
    // expected-error@+1 {{'arith.fptosi'}}
    %some = arith.fptosi %x : f32 to i32
    %next = arith.addi %count, %some : i32
    scf.yield %next : i32
  }
  scf.for %i = %c0 to %steps step %c1 : i32 {
    ditron.notify %sig add %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// Which of two integers it is, by an if, a select or a loop.
tt.func public @chosen(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c5 = arith.constant 5 : i32
  %x = tt.load %p : !tt.ptr<f32>
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{by the i1 that 'arith.cmpf' makes of it}}
  %positive = arith.cmpf ogt, %x, %zero : f32
  %n = scf.if %positive -> (i32) {
    scf.yield %c1 : i32
  } else {
    scf.yield %c5 : i32
  }
  // expected-error@+1 {{by the i1 that 'arith.cmpf' makes of it}}
  %negative = arith.cmpf olt, %x, %zero : f32
  %step = arith.select %negative, %c1, %c5 : i32
  // expected-error@+1 {{by the i32 that 'arith.fptosi' makes of it}}
  %often = arith.fptosi %x : f32 to i32
  %first = scf.for %i = %c0 to %often step %c1 iter_args(%count = %c0) -> (i32) : i32 {
    %next = arith.addi %count, %c1 : i32
    scf.yield %next : i32
  }
  scf.for %i = %first to %n step %step : i32 {
    ditron.notify %sig add %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// An early return.
tt.func public @early_return(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %x = tt.load %p : !tt.ptr<f32>
  // expected-error@+1 {{by the i1 that 'arith.cmpf' makes of it}}
  %positive = arith.cmpf ogt, %x, %x : f32
  cf.cond_br %positive, ^out, ^on
^on:
  ditron.notify %sig add %v on %r : !tt.ptr<i64>
  cf.br ^out
^out:
  tt.return
}

// A word whose low half is stored by itself, too, where somebody may wait for it.
tt.func public @half_of_a_word(%p: !tt.ptr<f32>, %box: !tt.ptr<i64>, %epoch: i64) {
  %c32 = arith.constant 32 : i64
  %low = arith.constant 4294967295 : i64
  %x = tt.load %p : !tt.ptr<f32>
  // expected-error@+1 {{by the i32 that 'tt.bitcast' makes of it}}
  %bits = tt.bitcast %x : f32 -> i32
  %extended = arith.extsi %bits : i32 to i64
  %below = arith.andi %extended, %low : i64
  %above = arith.shli %epoch, %c32 : i64
  %word = arith.ori %above, %below : i64
  ditron.st %box, %word scope node : !tt.ptr<i64>
  ditron.st %box, %below scope node : !tt.ptr<i64>
  tt.return
}

// A word whose low half has an integer beside the float's bits, which its reader may use.
tt.func public @shared_half(%p: !tt.ptr<bf16>, %box: !tt.ptr<i64>, %rows: i32, %epoch: i64) {
  %c16 = arith.constant 16 : i32
  %c32 = arith.constant 32 : i64
  %low = arith.constant 4294967295 : i64
  %x = tt.load %p : !tt.ptr<bf16>
  // expected-error@+1 {{by the i16 that 'tt.bitcast' makes of it}}
  %bits = tt.bitcast %x : bf16 -> i16
  %wide = arith.extui %bits : i16 to i32
  %shifted = arith.shli %rows, %c16 : i32
  %data = arith.ori %shifted, %wide : i32
  %extended = arith.extsi %data : i32 to i64
  %below = arith.andi %extended, %low : i64
  %above = arith.shli %epoch, %c32 : i64
  %word = arith.ori %above, %below : i64
  ditron.st %box, %word scope node : !tt.ptr<i64>
  tt.return
}

// Words that came, and of which more is used than that they are there.
tt.func public @decides_by_data_words(%p: !tt.ptr<f32>, %box: !tt.ptr<i32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %x = tt.load %p : !tt.ptr<f32>
  %bits = tt.bitcast %x : f32 -> i32
  %is_zero = arith.cmpi eq, %bits, %c0 : i32
  %word = arith.select %is_zero, %c1, %bits : i32
  ditron.st %box, %word scope node : !tt.ptr<i32>
  // expected-error@+1 {{by words of it that are loaded here}}
  %first = ditron.ld %box scope node : !tt.ptr<i32>
  %came = scf.while (%w = %first) : (i32) -> i32 {
    %missing = arith.cmpi eq, %w, %c0 : i32
    scf.condition(%missing) %w : i32
  } do {
  ^bb0(%w: i32):
    // expected-error@+1 {{by words of it that are loaded here}}
    %again = ditron.ld %box scope node : !tt.ptr<i32>
    scf.yield %again : i32
  }
  %low = arith.andi %came, %c1 : i32
  %odd = arith.cmpi ne, %low, %c0 : i32
  scf.if %odd {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
  }
  tt.return
}

// A word of a float that may be 0: whether it is there depends on data.
tt.func public @word_that_may_be_zero(%p: !tt.ptr<f32>, %box: !tt.ptr<i32>) {
  %c0 = arith.constant 0 : i32
  %x = tt.load %p : !tt.ptr<f32>
  // expected-error@+1 {{by the i32 that 'tt.bitcast' makes of it}}
  %bits = tt.bitcast %x : f32 -> i32
  %is_zero = arith.cmpi eq, %bits, %c0 : i32
  %word = arith.select %is_zero, %c0, %bits : i32
  ditron.st %box, %word scope node : !tt.ptr<i32>
  tt.return
}

// A data word that something else is made of, too.
tt.func public @word_that_is_used(%p: !tt.ptr<f32>, %box: !tt.ptr<i32>, %r: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %x = tt.load %p : !tt.ptr<f32>
  // expected-error@+1 {{by the i32 that 'tt.bitcast' makes of it}}
  %bits = tt.bitcast %x : f32 -> i32
  %is_zero = arith.cmpi eq, %bits, %c0 : i32
  %word = arith.select %is_zero, %c1, %bits : i32
  ditron.st %box, %word scope node : !tt.ptr<i32>
  %at = tt.addptr %box, %word : !tt.ptr<i32>, i32
  ditron.st %at, %r scope node : !tt.ptr<i32>
  tt.return
}
