; Transport p2p: every peer's heap is mapped here (torch symmetric memory, CUDA or HIP IPC); one node, nothing else to install.
;
; A put is a cooperative copy to the mapped address and a signal is a store or an atomic add there. The context's table
; says where each heap is mapped; a rank that is not mapped has base 0: symm_at gives null, and an operation that has to reach
; that rank traps, because its effect would otherwise be lost in silence.

declare void @ditron_block_barrier()
declare void @ditron_fence_scope(i32)
declare i64 @ditron_slot(ptr addrspace(1), i64)
declare i64 @ditron_peer_base(ptr addrspace(1), i32)
declare ptr addrspace(1) @ditron_translate(ptr addrspace(1), ptr addrspace(1), i64)
declare void @ditron_require_mapped(ptr addrspace(1))
declare i32 @ditron_wait(ptr addrspace(1), i32, i64, i32, i32, i32)
declare void @ditron_signal(ptr addrspace(1), i64, i32, i32)
declare void @ditron_release_signal(i1, ptr addrspace(1), i64, i32, i32)
declare i1 @ditron_leads()
declare void @ditron_copy_together(ptr addrspace(1), ptr addrspace(1), i64, i32)
declare void @ditron_barrier_mapped(ptr addrspace(1), i32)
declare void @llvm.trap()

define linkonce_odr hidden ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank) #1 {
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %rank)
  %r = call ptr addrspace(1) @ditron_translate(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %base)
  ret ptr addrspace(1) %r
}

; How far a peer's heap is from this rank's, in elements of `bytes`; `p` is any pointer into this rank's.
define linkonce_odr hidden i64 @ditron_symm_distance(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank, i64 %bytes) #1 {
  %there = call ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank)
  %to = ptrtoint ptr addrspace(1) %there to i64
  %from = ptrtoint ptr addrspace(1) %p to i64
  %distance = sub i64 %to, %from
  %r = sdiv exact i64 %distance, %bytes
  ret i64 %r
}

; Multicast memory belongs to the group as a whole; its base is 0 where the links have no multicast.
define linkonce_odr hidden ptr addrspace(1) @ditron_multicast_ptr(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %team) #1 {
  %base = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 12)
  %r = call ptr addrspace(1) @ditron_translate(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %base)
  ret ptr addrspace(1) %r
}

; symm_at, or a trap where it would be null.
define linkonce_odr hidden ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank) #0 {
  %r = call ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank)
  call void @ditron_require_mapped(ptr addrspace(1) %r)
  ret ptr addrspace(1) %r
}

; The barrier collects what every thread stored (puts are stores here, so they are ordered too); the fence of one thread is
; cumulative and releases it all; then the signal.
define linkonce_odr hidden i32 @ditron_notify(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op, i32 %scope) #0 {
  call void @ditron_block_barrier()
  %leader = call i1 @ditron_leads()
  %there = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i32 %rank)
  call void @ditron_release_signal(i1 %leader, ptr addrspace(1) %there, i64 %value, i32 %op, i32 %scope)
  ret i32 0
}

; OpenSHMEM's signal: no barrier, no fence; one thread acts.
define linkonce_odr hidden i32 @ditron_signal_op(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op) #0 {
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %there = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i32 %rank)
  call void @ditron_signal(ptr addrspace(1) %there, i64 %value, i32 %op, i32 2)
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_signal_wait_until(ptr addrspace(1) %signal, i64 %value, i32 %cmp) #0 {
  %r = call i32 @ditron_wait(ptr addrspace(1) %signal, i32 1, i64 %value, i32 %cmp, i32 2, i32 1)
  ret i32 %r
}

; A blocking put returns when its source may be overwritten, by any thread: hence the second barrier.
define linkonce_odr hidden i32 @ditron_putmem(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %rank, i32 %nbi, i32 %granularity) #0 {
  %there = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, i32 %rank)
  call void @ditron_copy_together(ptr addrspace(1) %there, ptr addrspace(1) %src, i64 %bytes, i32 %granularity)
  %blocking = icmp eq i32 %nbi, 0
  br i1 %blocking, label %wait, label %done
wait:
  call void @ditron_block_barrier()
  br label %done
done:
  ret i32 0
}

; A blocking get returns when every thread may read what arrived.
define linkonce_odr hidden i32 @ditron_getmem(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %rank, i32 %nbi, i32 %granularity) #0 {
  %there = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %src, i32 %rank)
  call void @ditron_copy_together(ptr addrspace(1) %dst, ptr addrspace(1) %there, i64 %bytes, i32 %granularity)
  %blocking = icmp eq i32 %nbi, 0
  br i1 %blocking, label %wait, label %done
wait:
  call void @ditron_block_barrier()
  br label %done
done:
  ret i32 0
}

; The data, then the signal: every thread fences what it copied, the barrier collects, one thread fences and signals.
define linkonce_odr hidden i32 @ditron_putmem_signal(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op, i32 %nbi, i32 %granularity) #0 {
  %there = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, i32 %rank)
  %flag = call ptr addrspace(1) @ditron_reach(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i32 %rank)
  call void @ditron_copy_together(ptr addrspace(1) %there, ptr addrspace(1) %src, i64 %bytes, i32 %granularity)
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  call void @ditron_fence_scope(i32 2)
  call void @ditron_signal(ptr addrspace(1) %flag, i64 %value, i32 %op, i32 2)
  br label %done
done:
  ret i32 0
}

; Puts are stores of all threads: each orders its own, and the barrier makes the order the program's.
define linkonce_odr hidden i32 @ditron_fence() #0 {
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  ret i32 0
}

; Complete is more than ordered: what comes behind, a load too, must not be done before the stores are visible. Only a
; sequentially consistent fence says so.
define linkonce_odr hidden i32 @ditron_quiet() #0 {
  fence seq_cst
  call void @ditron_block_barrier()
  ret i32 0
}

; The world is reached only when the group is the world: ranks outside of it are not in the context's table.
define linkonce_odr hidden i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team) #0 {
  %is_world = icmp eq i32 %team, 2
  %ranks = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %world = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 6)
  %differ = icmp ne i64 %ranks, %world
  %unreachable = and i1 %is_world, %differ
  br i1 %unreachable, label %trap, label %go
trap:
  call void @llvm.trap()
  unreachable
go:
  %is_node = icmp eq i32 %team, 1
  %which = zext i1 %is_node to i32
  call void @ditron_barrier_mapped(ptr addrspace(1) %ctx, i32 %which)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_sync_all(ptr addrspace(1) %ctx, i32 %team) #0 {
  %r = call i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team)
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_barrier_all(ptr addrspace(1) %ctx) #0 {
  %r = call i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 0)
  ret i32 %r
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
