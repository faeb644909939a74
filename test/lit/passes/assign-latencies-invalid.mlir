// What no load of a pipelined loop can be.
// RUN: ditron-opt %s --allow-unregistered-dialect --assign-latencies --verify-diagnostics --split-input-file

// Once, however many of its loop's loads are marked.
tt.func @another_load(%a: tensor<16x!tt.ptr<f16>>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %x = tt.load %a {ditron.load_ahead = 5 : i32} : tensor<16x!tt.ptr<f16>>
    // expected-error@+1 {{this load would not be pipelined, as another one of its loop says dl.load_ahead: say it of all}}
    %y = tt.load %a : tensor<16x!tt.ptr<f16>>
    %z = tt.load %a {ditron.load_ahead = 2 : i32} : tensor<16x!tt.ptr<f16>>
    "use"(%x, %y, %z) : (tensor<16xf16>, tensor<16xf16>, tensor<16xf16>) -> ()
  }
  tt.return
}

// -----

tt.func @no_loop(%a: tensor<16x!tt.ptr<f16>>) {
  // expected-error@+1 {{dl.load_ahead is of a load in the body of a for loop, and not under a condition in it}}
  %x = tt.load %a {ditron.load_ahead = 5 : i32} : tensor<16x!tt.ptr<f16>>
  "use"(%x) : (tensor<16xf16>) -> ()
  tt.return
}

// -----

tt.func @no_load(%a: tensor<16x!tt.ptr<f16>>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  scf.for %i = %c0 to %n step %c1 : i32 {
    %x = tt.load %a : tensor<16x!tt.ptr<f16>>
    // expected-error@+1 {{'arith.addf' is not a load: dl.load_ahead takes what tl.load or a descriptor's load returns, as it is}}
    %y = arith.addf %x, %x {ditron.load_ahead = 2 : i32} : tensor<16xf16>
    "use"(%y) : (tensor<16xf16>) -> ()
  }
  tt.return
}

// -----

// Loads of later iterations would be in front of the wait.
tt.func @waits(%a: tensor<16x!tt.ptr<f16>>, %sig: !tt.ptr<i64>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %v = arith.constant 1 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    %first = arith.cmpi eq, %i, %c0 : i32
    scf.if %first {
      %t = ditron.wait %sig[%c0] ge %v : !tt.ptr<i64>
    }
    // expected-error@+1 {{dl.load_ahead: the loop contains 'ditron.wait', which loads of later iterations must not be in front of}}
    %x = tt.load %a {ditron.load_ahead = 5 : i32} : tensor<16x!tt.ptr<f16>>
    "use"(%x) : (tensor<16xf16>) -> ()
  }
  tt.return
}

// -----

// And in front of what brings them.
tt.func @gets(%a: tensor<16x!tt.ptr<f16>>, %box: !tt.ptr<f16>, %x: !tt.ptr<f16>, %n: i32) {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %bytes = arith.constant 32 : i64
  scf.for %i = %c0 to %n step %c1 : i32 {
    ditron.getmem %box, %x, %bytes on %i : !tt.ptr<f16>, !tt.ptr<f16>
    // expected-error@+1 {{dl.load_ahead: the loop contains 'ditron.getmem', which loads of later iterations must not be in front of}}
    %y = tt.load %a {ditron.load_ahead = 1 : i32} : tensor<16x!tt.ptr<f16>>
    "use"(%y) : (tensor<16xf16>) -> ()
  }
  tt.return
}
