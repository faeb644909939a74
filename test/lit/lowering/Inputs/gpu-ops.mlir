// One kernel per row of the lowering table; the tests beside this folder say what becomes of each, per target and transport.
// Results are stored where LLVM would otherwise drop the operation.

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "rank", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.rank
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "num_ranks", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.num_ranks
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "local_rank", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.local_rank
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "num_local_ranks", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.num_local_ranks
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "node", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.node
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "rank_of_world", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.rank team world
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "symm_at", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %one = arith.constant 1.0 : f32
  %x = ditron.symm_at %p on %r : !tt.ptr<f32>
  "tt.store"(%x, %one) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "wait", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %t = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %one = arith.constant 1.0 : f32
  %x = ditron.consume_token %q, %t : !tt.ptr<f32>
  %y = "tt.load"(%x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
  "tt.store"(%p, %y) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "wait_on_gpu", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %t = ditron.wait %sig[%n] eq %v scope gpu : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "notify", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "notify_add", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.notify %sig add %v on %r scope world : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "notify_on_gpu", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.notify %sig set %v on %r scope gpu : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "signal_op", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "signal_op_set", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "signal_wait_until", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  "tt.store"(%sig, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i64>, i64) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem %p, %q, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem_nbi", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem %p, %q, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem_nbi_warp", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem %p, %q, %v on %r nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem_thread", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem %p, %q, %v on %r granularity thread : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "getmem", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.getmem %p, %q, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "getmem_nbi", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.getmem %p, %q, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "getmem_nbi_warp", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.getmem %p, %q, %v on %r nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "getmem_thread", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.getmem %p, %q, %v on %r granularity thread : !tt.ptr<f32>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem_signal", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem_signal %p, %q, %v, %sig set %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "putmem_signal_nbi", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.putmem_signal %p, %q, %v, %sig add %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ll_put", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.ll_put %sig, %p, %v, %v on %r : !tt.ptr<i64>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ll128_put", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.ll_put %sig, %p, %v, %v on %r protocol ll128 : !tt.ptr<i64>, !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ll_get", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %t = ditron.ll_get %p, %sig, %v, %v : !tt.ptr<f32>, !tt.ptr<i64>
  %ready = ditron.consume_token %p, %t : !tt.ptr<f32>
  %f = "tt.load"(%ready) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
  "tt.store"(%q, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ll128_get", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %t = ditron.ll_get %p, %sig, %v, %v protocol ll128 : !tt.ptr<f32>, !tt.ptr<i64>
  %ready = ditron.consume_token %p, %t : !tt.ptr<f32>
  %f = "tt.load"(%ready) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32, isVolatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}> : (!tt.ptr<f32>) -> f32
  "tt.store"(%q, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "fence", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.fence
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "quiet", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.quiet
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "barrier_all", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.barrier_all
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "barrier", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.barrier
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "sync_all", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.sync_all
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "barrier_of_node", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.barrier team node
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ld", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.ld %q scope node semantic acquire : !tt.ptr<f32>
  "tt.store"(%p, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "st", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = arith.constant 1.0 : f32
  ditron.st %q, %x scope node semantic release : !tt.ptr<f32>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "atomic_add", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %one = arith.constant 1 : i64
  %x = ditron.atomic_add %sig, %one scope node semantic acq_rel : !tt.ptr<i64>
  "tt.store"(%sig, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i64>, i64) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "atomic_cas", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.atomic_cas %sig, %v, %v scope gpu semantic acquire : !tt.ptr<i64>
  "tt.store"(%sig, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i64>, i64) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "atomic_cas_of_node", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.atomic_cas %sig, %v, %v scope node : !tt.ptr<i64>
  "tt.store"(%sig, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i64>, i64) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "red", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.red %sig max %v scope world semantic release : !tt.ptr<i64>
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "thread_id", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.thread_id
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "num_threads", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.num_threads
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "lane_id", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.lane_id
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "warp_id", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.warp_id
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "sync_threads", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  ditron.sync_threads
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "shfl", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = arith.constant 1.0 : f32
  %t = ditron.thread_id
  %u = "tt.bitcast"(%t) : (i32) -> f32
  %y = ditron.shfl bfly %u, %r : f32
  "tt.store"(%p, %y) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "ballot", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %c = arith.cmpi slt, %r, %n : i32
  %x = ditron.ballot %c
  "tt.store"(%sig, %x) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<i64>, i64) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()

"tt.func"() <{function_type = (!tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>, i64, i32, i32, !tt.ptr<i64>) -> (), sym_name = "extern_call", sym_visibility = "public"}> ({
^bb0(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>):
  %x = ditron.extern_call "my_function"(%p, %r) from "mine" : (!tt.ptr<f32>, i32) -> i32
  %f = "tt.bitcast"(%x) : (i32) -> f32
  "tt.store"(%p, %f) <{boundaryCheck = array<i32>, cache = 1 : i32, evict = 1 : i32}> : (!tt.ptr<f32>, f32) -> ()
  "tt.return"() : () -> ()
}) {ditron.kernel} : () -> ()
