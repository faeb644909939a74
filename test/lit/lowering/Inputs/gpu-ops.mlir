// One kernel per row of the lowering table; the tests beside this folder say what becomes of each, per target and transport.
// Results are stored where LLVM would otherwise drop the operation.

tt.func public @rank(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.rank
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @num_ranks(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.num_ranks
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @local_rank(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.local_rank
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @num_local_ranks(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.num_local_ranks
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @node(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.node
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @rank_of_world(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.rank team world
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @symm_at(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1.0 : f32
  %x = ditron.symm_at %p on %r : !tt.ptr<f32>
  tt.store %x, %one : !tt.ptr<f32>
  tt.return
}

tt.func public @wait(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %t = ditron.wait %sig[%n] ge %v : !tt.ptr<i64>
  %one = arith.constant 1.0 : f32
  %x = ditron.consume_token %q, %t : !tt.ptr<f32>
  %y = tt.load %x : !tt.ptr<f32>
  tt.store %p, %y : !tt.ptr<f32>
  tt.return
}

tt.func public @wait_on_gpu(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %t = ditron.wait %sig[%n] eq %v scope gpu : !tt.ptr<i64>
  tt.return
}

tt.func public @notify(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.notify %sig set %v on %r : !tt.ptr<i64>
  tt.return
}

tt.func public @notify_add(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.notify %sig add %v on %r scope world : !tt.ptr<i64>
  tt.return
}

tt.func public @notify_on_gpu(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.notify %sig set %v on %r scope gpu : !tt.ptr<i64>
  tt.return
}

tt.func public @signal_op(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.signal_op %sig add %v on %r : !tt.ptr<i64>
  tt.return
}

tt.func public @signal_op_set(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.signal_op %sig set %v on %r : !tt.ptr<i64>
  tt.return
}

tt.func public @signal_wait_until(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.signal_wait_until %sig ge %v : !tt.ptr<i64>
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @signal_fetch(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.signal_fetch %sig : !tt.ptr<i64>
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @putmem(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem %p, %q, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @putmem_nbi(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem %p, %q, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @putmem_nbi_warp(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem %p, %q, %v on %r nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @putmem_thread(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem %p, %q, %v on %r granularity thread : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @getmem(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.getmem %p, %q, %v on %r : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @getmem_nbi(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.getmem %p, %q, %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @getmem_nbi_warp(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.getmem %p, %q, %v on %r nbi granularity warp : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @getmem_thread(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.getmem %p, %q, %v on %r granularity thread : !tt.ptr<f32>, !tt.ptr<f32>
  tt.return
}

tt.func public @putmem_signal(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem_signal %p, %q, %v, %sig set %v on %r : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  tt.return
}

tt.func public @putmem_signal_nbi(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.putmem_signal %p, %q, %v, %sig add %v on %r nbi : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
  tt.return
}

tt.func public @ll_put(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.ll_put %sig, %p, %v, %v on %r : !tt.ptr<i64>, !tt.ptr<f32>
  tt.return
}

tt.func public @ll128_put(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.ll_put %sig, %p, %v, %v on %r protocol ll128 : !tt.ptr<i64>, !tt.ptr<f32>
  tt.return
}

tt.func public @ll_get(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %t = ditron.ll_get %p, %sig, %v, %v : !tt.ptr<f32>, !tt.ptr<i64>
  %ready = ditron.consume_token %p, %t : !tt.ptr<f32>
  %f = tt.load %ready : !tt.ptr<f32>
  tt.store %q, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @ll128_get(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %t = ditron.ll_get %p, %sig, %v, %v protocol ll128 : !tt.ptr<f32>, !tt.ptr<i64>
  %ready = ditron.consume_token %p, %t : !tt.ptr<f32>
  %f = tt.load %ready : !tt.ptr<f32>
  tt.store %q, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @fence(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.fence
  tt.return
}

tt.func public @quiet(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.quiet
  tt.return
}

tt.func public @barrier_all(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.barrier_all
  tt.return
}

tt.func public @barrier(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.barrier
  tt.return
}

tt.func public @sync_all(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.sync_all
  tt.return
}

tt.func public @barrier_of_node(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.barrier team node
  tt.return
}

tt.func public @ld(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.ld %q scope node semantic acquire : !tt.ptr<f32>
  tt.store %p, %x : !tt.ptr<f32>
  tt.return
}

tt.func public @st(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = arith.constant 1.0 : f32
  ditron.st %q, %x scope node semantic release : !tt.ptr<f32>
  tt.return
}

tt.func public @atomic_add(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %one = arith.constant 1 : i64
  %x = ditron.atomic_add %sig, %one scope node semantic acq_rel : !tt.ptr<i64>
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @atomic_cas(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.atomic_cas %sig, %v, %v scope gpu semantic acquire : !tt.ptr<i64>
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @atomic_cas_of_node(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.atomic_cas %sig, %v, %v scope node : !tt.ptr<i64>
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @red(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.red %sig max %v scope world semantic release : !tt.ptr<i64>
  tt.return
}

tt.func public @thread_id(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.thread_id
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @num_threads(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.num_threads
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @lane_id(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.lane_id
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @warp_id(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.warp_id
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}

tt.func public @spend(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.spend dot16 %v
  ditron.spend store %v at %p : !tt.ptr<f32>
  tt.return
}

tt.func public @expect(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c = arith.cmpi slt, %r, %n : i32
  %x = ditron.expect %c, 0.25 uniform
  tt.store %sig, %v, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @sync_threads(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  ditron.sync_threads
  tt.return
}

tt.func public @shfl(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = arith.constant 1.0 : f32
  %t = ditron.thread_id
  %u = tt.bitcast %t : i32 -> f32
  %y = ditron.shfl bfly %u, %r : f32
  tt.store %p, %y : !tt.ptr<f32>
  tt.return
}

tt.func public @ballot(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %c = arith.cmpi slt, %r, %n : i32
  %x = ditron.ballot %c
  tt.store %sig, %x : !tt.ptr<i64>
  tt.return
}

tt.func public @extern_call(%p: !tt.ptr<f32>, %q: !tt.ptr<f32>, %sig: !tt.ptr<i64>, %v: i64, %r: i32, %n: i32, %ctx: !tt.ptr<i64>) attributes {ditron.kernel} {
  %x = ditron.extern_call "my_function"(%p, %r) from "mine" : (!tt.ptr<f32>, i32) -> i32
  %f = tt.bitcast %x : i32 -> f32
  tt.store %p, %f : !tt.ptr<f32>
  tt.return
}
