// RUN: ditron-opt %s --split-input-file --verify-diagnostics --lower-swizzle

func.func @experts(%tile: i32, %size: i32, %block: i32, %counts: !tt.ptr<i32>) -> i32 {
  // expected-error@+1 {{the order by (expert, arrival) has no lowering yet: leave out `experts`}}
  %m = ditron.swizzle gather %tile of %size by %block experts 8 in %counts : !tt.ptr<i32>
  return %m : i32
}
