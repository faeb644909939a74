; Transport rocshmem: the operations as calls of rocSHMEM's device functions (librocshmem_device_<arch>.bc); one node or many.
;
; A rank of the group becomes a PE through the context's table. rocSHMEM's pointers are generic (flat): ours are cast. Signal set is 0,
; add 1, and the comparisons have our order. The names are those of its C interface for bitcode users; that has no quiet and no
; atomics (and rocSHMEM has no signal_op at all), so these three are the C++ functions that the same bitcode defines.

declare void @ditron_block_barrier()
declare void @ditron_fence_scope(i32)
declare i64 @ditron_slot(ptr addrspace(1), i64)
declare i32 @ditron_pe(ptr addrspace(1), i32)
declare i1 @ditron_leads()
declare i1 @ditron_joins(i32)
declare void @ditron_signal(ptr addrspace(1), i64, i32, i32)
declare void @ditron_require_mapped(ptr addrspace(1))
declare void @ditron_barrier_mapped(ptr addrspace(1), i32)

declare ptr @rocshmem_ptr(ptr, i32)
declare void @rocshmem_putmem(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_nbi(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_wave(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_nbi_wave(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_wg(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_nbi_wg(ptr, ptr, i64, i32)
declare void @rocshmem_getmem(ptr, ptr, i64, i32)
declare void @rocshmem_getmem_nbi(ptr, ptr, i64, i32)
declare void @rocshmem_getmem_wave(ptr, ptr, i64, i32)
declare void @rocshmem_getmem_nbi_wave(ptr, ptr, i64, i32)
declare void @rocshmem_getmem_wg(ptr, ptr, i64, i32)
declare void @rocshmem_getmem_nbi_wg(ptr, ptr, i64, i32)
declare void @rocshmem_putmem_signal(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_putmem_signal_nbi(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_putmem_signal_wave(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_putmem_signal_nbi_wave(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_putmem_signal_wg(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_putmem_signal_nbi_wg(ptr, ptr, i64, ptr, i64, i32, i32)
declare void @rocshmem_ulong_wait_until(ptr, i32, i64)
declare void @rocshmem_fence()
declare void @rocshmem_barrier_all_wg()
declare void @_ZN8rocshmem14rocshmem_quietEv()
declare void @_ZN8rocshmem25rocshmem_ulong_atomic_setEPmmi(ptr, i64, i32)
declare void @_ZN8rocshmem25rocshmem_ulong_atomic_addEPmmi(ptr, i64, i32)

define linkonce_odr hidden ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank) #1 {
  %pe = call i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank)
  %generic = addrspacecast ptr addrspace(1) %p to ptr
  %there = call ptr @rocshmem_ptr(ptr %generic, i32 %pe)
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

; The calling thread signals.
define linkonce_odr hidden void @ditron_shmem_signal(ptr addrspace(1) %signal, i64 %value, i32 %op, i32 %pe) #0 {
  %generic = addrspacecast ptr addrspace(1) %signal to ptr
  %is_add = icmp eq i32 %op, 1
  br i1 %is_add, label %add, label %set
add:
  call void @_ZN8rocshmem25rocshmem_ulong_atomic_addEPmmi(ptr %generic, i64 %value, i32 %pe)
  ret void
set:
  call void @_ZN8rocshmem25rocshmem_ulong_atomic_setEPmmi(ptr %generic, i64 %value, i32 %pe)
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
  call void @rocshmem_fence()
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
  call void @rocshmem_ulong_wait_until(ptr %generic, i32 %cmp, i64 %value)
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
  call void @rocshmem_putmem_nbi(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_warp:
  call void @rocshmem_putmem_nbi_wave(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_block:
  call void @rocshmem_putmem_nbi_wg(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @rocshmem_putmem(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_warp:
  call void @rocshmem_putmem_wave(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_block:
  call void @rocshmem_putmem_wg(ptr %to, ptr %from, i64 %bytes, i32 %pe)
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
  call void @rocshmem_getmem_nbi(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_warp:
  call void @rocshmem_getmem_nbi_wave(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
go_block:
  call void @rocshmem_getmem_nbi_wg(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @rocshmem_getmem(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_warp:
  call void @rocshmem_getmem_wave(ptr %to, ptr %from, i64 %bytes, i32 %pe)
  br label %end
wait_block:
  call void @rocshmem_getmem_wg(ptr %to, ptr %from, i64 %bytes, i32 %pe)
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
  call void @rocshmem_putmem_signal_nbi(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
  br label %end
go_warp:
  call void @rocshmem_putmem_signal_nbi_wave(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
  br label %end
go_block:
  call void @rocshmem_putmem_signal_nbi_wg(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
  br label %end
wait:
  switch i32 %granularity, label %wait_block [ i32 0, label %wait_thread
                                               i32 1, label %wait_warp ]
wait_thread:
  call void @rocshmem_putmem_signal(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
  br label %end
wait_warp:
  call void @rocshmem_putmem_signal_wave(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
  br label %end
wait_block:
  call void @rocshmem_putmem_signal_wg(ptr %to, ptr %from, i64 %bytes, ptr %flag, i64 %value, i32 %op, i32 %pe)
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
  call void @rocshmem_fence()
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
  call void @_ZN8rocshmem14rocshmem_quietEv()
  br label %done
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; The world's barrier is rocSHMEM's. A smaller team's is ours, between ranks that map each other: rocSHMEM's bitcode has no team
; barrier with a C name. A group that is not the world and spans nodes traps there.
define linkonce_odr hidden i32 @ditron_barrier_all(ptr addrspace(1) %ctx) #0 {
  %r = call i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 0)
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team) #0 {
  %ranks = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %world = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 6)
  %whole = icmp eq i64 %ranks, %world
  %is_node = icmp eq i32 %team, 1
  %is_world = icmp eq i32 %team, 2
  %not_node = xor i1 %is_node, true
  %group_is_world = and i1 %whole, %not_node
  %all = or i1 %is_world, %group_is_world
  br i1 %all, label %shmem, label %ours
shmem:
  call void @ditron_block_barrier()
  call void @rocshmem_barrier_all_wg()
  call void @ditron_fence_scope(i32 2)
  ret i32 0
ours:
  %quiet = call i32 @ditron_quiet()
  %which = zext i1 %is_node to i32
  call void @ditron_barrier_mapped(ptr addrspace(1) %ctx, i32 %which)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_sync_all(ptr addrspace(1) %ctx, i32 %team) #0 {
  %r = call i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team)
  ret i32 %r
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
