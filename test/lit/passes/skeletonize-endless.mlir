// A loop whose condition is drawn, and always true.
// RUN: ditron-opt %s --skeletonize --verify-diagnostics

tt.func public @endless(%p: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32) {
  %x = tt.load %p : !tt.ptr<f32>
  %positive = arith.cmpf ogt, %x, %x : f32
  // expected-error@+1 {{this loop would never end, as timing-only mode draws its condition and that is always true: give dl.expect a probability below 1 (of 1 - 1/n, the loop has n iterations on average)}}
  scf.while : () -> () {
    %again = ditron.expect %positive, 1.0
    scf.condition(%again)
  } do {
    ditron.notify %sig set %v on %r : !tt.ptr<i64>
    scf.yield
  }
  tt.return
}
