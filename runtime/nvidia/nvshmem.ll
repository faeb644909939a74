; Transport nvshmem: the operations as calls of NVSHMEM's device functions (libnvshmem_device.bc, 3.4); one node or many.
;
; A rank of the group becomes a PE through the context's table. NVSHMEM's pointers are generic: ours are cast. Its enumerations are
; its own: signal set 9, add 10; comparisons EQ 0 NE 1 GT 2 LE 3 LT 4 GE 5; teams world 0, node 2.

declare void @ditron_block_barrier()
declare void @ditron_fence_scope(i32)
declare i64 @ditron_slot(ptr addrspace(1), i64)
declare i32 @ditron_pe(ptr addrspace(1), i32)
declare i1 @ditron_leads()
declare i1 @ditron_joins(i32)
declare void @ditron_signal(ptr addrspace(1), i64, i32, i32)
declare void @ditron_require_mapped(ptr addrspace(1))
declare void @ditron_barrier_mapped(ptr addrspace(1), i32)

declare ptr @nvshmem_ptr(ptr, i32)
declare ptr @nvshmemx_mc_ptr(i32, ptr)
declare void @nvshmem_putmem(ptr, ptr, i64, i32)
declare void @nvshmem_putmem_nbi(ptr, ptr, i64, i32)
declare void @nvshmemx_putmem_warp(ptr, ptr, i64, i32)
declare void @nvshmemx_putmem_nbi_warp(ptr, ptr, i64, i32)
declare void @nvshmemx_putmem_block(ptr, ptr, i64, i32)
declare void @nvshmemx_putmem_nbi_block(ptr, ptr, i64, i32)
declare void @nvshmem_getmem(ptr, ptr, i64, i32)
declare void @nvshmem_getmem_nbi(ptr, ptr, i64, i32)
declare void @nvshmemx_getmem_warp(ptr, ptr, i64, i32)
declare void @nvshmemx_getmem_nbi_warp(ptr, ptr, i64, i32)
declare void @nvshmemx_getmem_block(ptr, ptr, i64, i32)
declare void @nvshmemx_getmem_nbi_block(ptr, ptr, i64, i32)
declare void @nvshmem_putmem_signal(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmem_putmem_signal_nbi(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmemx_putmem_signal_warp(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmemx_putmem_signal_nbi_warp(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmemx_putmem_signal_block(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmemx_putmem_signal_nbi_block(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @nvshmemx_signal_op(ptr, i64, i32, i32)
declare i64 @nvshmem_signal_wait_until(ptr, i32, i64)
declare void @nvshmem_fence()
declare void @nvshmem_quiet()
declare void @nvshmemx_barrier_all_block()
declare i32 @nvshmemx_barrier_block(i32)
declare i32 @nvshmemx_team_sync_block(i32)

define linkonce_odr hidden ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank) #1 {
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  %generic = addrspacecast ptr addrspace(1) %p to ptr
  %there = call ptr @nvshmem_ptr(ptr %generic, i32 %pe)
  %r = addrspacecast ptr %there to ptr addrspace(1)
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

; The SHMEM team of ours: the group's own is in the context.
define linkonce_odr hidden i32 @ditron_team(ptr addrspace(1) %ctx, i32 %team) #1 {
  %slot = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 7)
  %group = trunc i64 %slot to i32
  %is_node = icmp eq i32 %team, 1
  %is_world = icmp eq i32 %team, 2
  %a = select i1 %is_node, i32 2, i32 %group
  %r = select i1 %is_world, i32 0, i32 %a
  ret i32 %r
}

define linkonce_odr hidden ptr addrspace(1) @ditron_multicast_ptr(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %team) #1 {
  %shmem_team = call i32 @ditron_team(ptr addrspace(1) %ctx, i32 %team)
  %generic = addrspacecast ptr addrspace(1) %p to ptr
  %multicast = call ptr @nvshmemx_mc_ptr(i32 %shmem_team, ptr %generic)
  %r = addrspacecast ptr %multicast to ptr addrspace(1)
  ret ptr addrspace(1) %r
}

; The calling thread signals.
define linkonce_odr hidden void @ditron_shmem_signal(ptr addrspace(1) %signal, i64 %value, i32 %op, i32 %pe) #0 {
  %generic = addrspacecast ptr addrspace(1) %signal to ptr
  %nv_op = add i32 %op, 9
  call void @nvshmemx_signal_op(ptr %generic, i64 %value, i32 %nv_op, i32 %pe)
  ret void
}

; The barrier collects what every thread did; the library's fence orders it, stores and puts, before the signal to that rank.
; Within one GPU (scope 0) the signal is a store at the mapped address.
define linkonce_odr hidden i32 @ditron_notify(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op, i32 %scope) #0 {
  call void @ditron_block_barrier()
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %here, label %shmem
here:
  %there = call ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i32 %rank)
  call void @ditron_require_mapped(ptr addrspace(1) %there)
  call void @ditron_fence_scope(i32 0)
  call void @ditron_signal(ptr addrspace(1) %there, i64 %value, i32 %op, i32 0)
  br label %done
shmem:
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  call void @ditron_fence_scope(i32 2)
  call void @nvshmem_fence()
  call void @ditron_shmem_signal(ptr addrspace(1) %signal, i64 %value, i32 %op, i32 %pe)
  br label %done
done:
  ret i32 0
}

; OpenSHMEM's signal: no barrier, no fence; one thread acts.
define linkonce_odr hidden i32 @ditron_signal_op(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op) #0 {
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  call void @ditron_shmem_signal(ptr addrspace(1) %signal, i64 %value, i32 %op, i32 %pe)
  br label %done
done:
  ret i32 0
}

; One thread waits; the fence makes its read an acquire, which SHMEM does not guarantee for plain loads; the barrier extends that to all.
define linkonce_odr hidden i32 @ditron_signal_wait_until(ptr addrspace(1) %signal, i64 %value, i32 %cmp) #0 {
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %generic = addrspacecast ptr addrspace(1) %signal to ptr
  %is_ge = icmp eq i32 %cmp, 3
  %is_le = icmp eq i32 %cmp, 5
  %a = select i1 %is_ge, i32 5, i32 %cmp
  %nv_cmp = select i1 %is_le, i32 3, i32 %a
  %seen = call i64 @nvshmem_signal_wait_until(ptr %generic, i32 %nv_cmp, i64 %value)
  call void @ditron_fence_scope(i32 2)
  br label %done
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; The barrier before lets the copy, or the NIC, read what every thread stored; a blocking put is followed by one, so
; that any thread may overwrite the source.
define linkonce_odr hidden i32 @ditron_putmem(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %rank, i32 %nbi, i32 %granularity) #0 {
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  %to = addrspacecast ptr addrspace(1) %dst to ptr
  %from = addrspacecast ptr addrspace(1) %src to ptr
  call void @ditron_block_barrier()
  %blocking = icmp eq i32 %nbi, 0
  %joins = call i1 @ditron_joins(i32 %granularity)
  br i1 %joins, label %begin, label %end
begin:
  br i1 %blocking, label %wait, label %go
go:
  switch i32 %granularity, label %go_block [ i32 0, label %go_thread
                                             i32 1, label %go_warp ]
go_thread:
  call void @nvshmem_putmem_nbi(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_warp:
  call void @nvshmemx_putmem_nbi_warp(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_block:
  call void @nvshmemx_putmem_nbi_block(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @nvshmem_putmem(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_warp:
  call void @nvshmemx_putmem_warp(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_block:
  call void @nvshmemx_putmem_block(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
end:
  br i1 %blocking, label %barrier, label %done
barrier:
  call void @ditron_block_barrier()
  br label %done
done:
  ret i32 0
}

; The barrier before protects what other threads still read; a blocking get is followed by one, so that every thread
; may read.
define linkonce_odr hidden i32 @ditron_getmem(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %rank, i32 %nbi, i32 %granularity) #0 {
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  %to = addrspacecast ptr addrspace(1) %dst to ptr
  %from = addrspacecast ptr addrspace(1) %src to ptr
  call void @ditron_block_barrier()
  %blocking = icmp eq i32 %nbi, 0
  %joins = call i1 @ditron_joins(i32 %granularity)
  br i1 %joins, label %begin, label %end
begin:
  br i1 %blocking, label %wait, label %go
go:
  switch i32 %granularity, label %go_block [ i32 0, label %go_thread
                                             i32 1, label %go_warp ]
go_thread:
  call void @nvshmem_getmem_nbi(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_warp:
  call void @nvshmemx_getmem_nbi_warp(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_block:
  call void @nvshmemx_getmem_nbi_block(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @nvshmem_getmem(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_warp:
  call void @nvshmemx_getmem_warp(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_block:
  call void @nvshmemx_getmem_block(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
end:
  br i1 %blocking, label %barrier, label %done
barrier:
  call void @ditron_block_barrier()
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_putmem_signal(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, ptr addrspace(1) %signal, i64 %value, i32 %rank, i32 %op, i32 %nbi, i32 %granularity) #0 {
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  %to = addrspacecast ptr addrspace(1) %dst to ptr
  %from = addrspacecast ptr addrspace(1) %src to ptr
  %flag = addrspacecast ptr addrspace(1) %signal to ptr
  %shmem_op = add i32 %op, 9
  call void @ditron_block_barrier()
  %blocking = icmp eq i32 %nbi, 0
  %joins = call i1 @ditron_joins(i32 %granularity)
  br i1 %joins, label %begin, label %end
begin:
  br i1 %blocking, label %wait, label %go
go:
  switch i32 %granularity, label %go_block [ i32 0, label %go_thread
                                             i32 1, label %go_warp ]
go_thread:
  call void @nvshmem_putmem_signal_nbi(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
go_warp:
  call void @nvshmemx_putmem_signal_nbi_warp(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
go_block:
  call void @nvshmemx_putmem_signal_nbi_block(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @nvshmem_putmem_signal(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
wait_warp:
  call void @nvshmemx_putmem_signal_warp(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
wait_block:
  call void @nvshmemx_putmem_signal_block(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %shmem_op, i32 %pe)
  br label %end
end:
  br i1 %blocking, label %barrier, label %done
barrier:
  call void @ditron_block_barrier()
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_fence() #0 {
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  call void @nvshmem_fence()
  br label %done
done:
  call void @ditron_block_barrier()
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_quiet() #0 {
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  call void @nvshmem_quiet()
  br label %done
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; Of the node of a group that is not the world, NVSHMEM has no team: those ranks map each other, so ours serves.
define linkonce_odr hidden i1 @ditron_has_team(ptr addrspace(1) %ctx, i32 %team) #1 {
  %ranks = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %world = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 6)
  %is_world = icmp eq i64 %ranks, %world
  %not_node = icmp ne i32 %team, 1
  %r = or i1 %is_world, %not_node
  ret i1 %r
}

; The whole group: NVSHMEM's own when the group is the world, else its team's.
define linkonce_odr hidden i32 @ditron_barrier_all(ptr addrspace(1) %ctx) #0 {
  %ranks = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %world = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 6)
  %is_world = icmp eq i64 %ranks, %world
  call void @ditron_block_barrier()
  br i1 %is_world, label %all, label %team
all:
  call void @nvshmemx_barrier_all_block()
  ret i32 0
team:
  %shmem_team = call i32 @ditron_team(ptr addrspace(1) %ctx, i32 0)
  %status = call i32 @nvshmemx_barrier_block(i32 %shmem_team)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team) #0 {
  call void @ditron_block_barrier()
  %has = call i1 @ditron_has_team(ptr addrspace(1) %ctx, i32 %team)
  br i1 %has, label %shmem, label %ours
shmem:
  %shmem_team = call i32 @ditron_team(ptr addrspace(1) %ctx, i32 %team)
  %status = call i32 @nvshmemx_barrier_block(i32 %shmem_team)
  ret i32 0
ours:
  %quiet = call i32 @ditron_quiet()
  call void @ditron_barrier_mapped(ptr addrspace(1) %ctx, i32 1)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_sync_all(ptr addrspace(1) %ctx, i32 %team) #0 {
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  %has = call i1 @ditron_has_team(ptr addrspace(1) %ctx, i32 %team)
  br i1 %has, label %shmem, label %ours
shmem:
  %shmem_team = call i32 @ditron_team(ptr addrspace(1) %ctx, i32 %team)
  %status = call i32 @nvshmemx_team_sync_block(i32 %shmem_team)
  ret i32 0
ours:
  call void @ditron_barrier_mapped(ptr addrspace(1) %ctx, i32 1)
  ret i32 0
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
