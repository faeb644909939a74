; What every GPU transport shares: the group's context, signals, waits, copies, the in-kernel barrier.
;
; Written once for both vendors, so that the meaning of an operation cannot differ between them. It calls only the
; primitives of runtime/{nvidia,amd}/common.ll. No target triple: Triton gives the module its own when it links this.
;
; Every thread of a program calls these functions with the same arguments. Functions that stand for an operation without
; a result return i32 0, because tt.extern_elementwise must have a result. Enumerations arrive as constants and fold
; once the function is inlined:
;   scope 0 gpu, 1 node, 2 world (node and world both mean: the whole system)   semantic 0 relaxed 1 acquire 2 release 3 acq_rel
;   cmp 0 eq 1 ne 2 gt 3 ge 4 lt 5 le (signed)   op 0 set 1 add   granularity 0 thread 1 warp 2 block   team 0 group 1 node 2 world
;
; Context (ditron/distributed/context.py has the same list), int64 slots:
;   0 rank  1 num_ranks  2 local_rank  3 num_local_ranks  4 node  5 world rank  6 world size  7 SHMEM team
;   8 heap base  9 heap bytes  10 offset of the barrier area in the heap  11 report buffer  12 multicast base of the heap or 0  13 limit in ns
;   16+r  base of group rank r's heap as mapped here, or 0       16+num_ranks+r  world rank of group rank r
; The context does not change while a kernel runs: its loads are invariant, so LLVM may merge and hoist them.

declare i32 @ditron_thread_id()
declare i32 @ditron_num_threads()
declare i32 @ditron_warp_size()
declare void @ditron_block_barrier()
declare void @ditron_fence_scope(i32)
declare i64 @ditron_poll(ptr addrspace(1), i32, i32)
declare void @ditron_polled(i32, i32)
declare i64 @ditron_ld_b64(ptr addrspace(1), i32, i32)
declare i32 @ditron_st_b8(ptr addrspace(1), i8, i32, i32)
declare i32 @ditron_st_b16(ptr addrspace(1), i16, i32, i32)
declare i32 @ditron_st_b32(ptr addrspace(1), i32, i32, i32)
declare i32 @ditron_st_b64(ptr addrspace(1), i64, i32, i32)
declare void @ditron_add_b64(ptr addrspace(1), i64, i32)
declare i32 @ditron_shfl_i32(i32, i32, i32)
declare void @llvm.trap()

; ---- the context -------------------------------------------------------------------------------------------------

define linkonce_odr hidden i64 @ditron_slot(ptr addrspace(1) %ctx, i64 %slot) #1 {
  %p = getelementptr i64, ptr addrspace(1) %ctx, i64 %slot
  %v = load i64, ptr addrspace(1) %p, align 8, !invariant.load !0
  ret i64 %v
}

; The entry of `team` among three slots that follow the order group, node, world.
define linkonce_odr hidden i32 @ditron_team_slot(ptr addrspace(1) %ctx, i32 %team, i64 %group, i64 %node, i64 %world) #1 {
  %is_node = icmp eq i32 %team, 1
  %is_world = icmp eq i32 %team, 2
  %a = select i1 %is_node, i64 %node, i64 %group
  %slot = select i1 %is_world, i64 %world, i64 %a
  %v = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 %slot)
  %r = trunc i64 %v to i32
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_rank(ptr addrspace(1) %ctx, i32 %team) #1 {
  %r = call i32 @ditron_team_slot(ptr addrspace(1) %ctx, i32 %team, i64 0, i64 2, i64 5)
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_num_ranks(ptr addrspace(1) %ctx, i32 %team) #1 {
  %r = call i32 @ditron_team_slot(ptr addrspace(1) %ctx, i32 %team, i64 1, i64 3, i64 6)
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_node(ptr addrspace(1) %ctx) #1 {
  %v = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 4)
  %r = trunc i64 %v to i32
  ret i32 %r
}

; Base of group rank `rank`'s heap as mapped here; 0 when it is not mapped (another node).
define linkonce_odr hidden i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %rank) #1 {
  %r = sext i32 %rank to i64
  %slot = add i64 %r, 16
  %base = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 %slot)
  ret i64 %base
}

; World rank (PE) of group rank `rank`.
define linkonce_odr hidden i32 @ditron_pe(ptr addrspace(1) %ctx, i32 %rank) #1 {
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %r = sext i32 %rank to i64
  %rn = add i64 %r, %n
  %slot = add i64 %rn, 16
  %pe = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 %slot)
  %pe32 = trunc i64 %pe to i32
  ret i32 %pe32
}

; `p`, an address in this rank's heap, in a heap that begins at `base`; null when `base` is 0.
define linkonce_odr hidden ptr addrspace(1) @ditron_translate(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %base) #1 {
  %own = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 8)
  %delta = sub i64 %base, %own
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %delta
  %unmapped = icmp eq i64 %base, 0
  %r = select i1 %unmapped, ptr addrspace(1) null, ptr addrspace(1) %q
  ret ptr addrspace(1) %r
}

; Traps when `p` is null: a signal or a put to a rank that this transport does not reach would otherwise be lost.
define linkonce_odr hidden void @ditron_require_mapped(ptr addrspace(1) %p) #0 {
  %null = icmp eq ptr addrspace(1) %p, null
  br i1 %null, label %unmapped, label %mapped
unmapped:
  call void @llvm.trap()
  unreachable
mapped:
  ret void
}

; ---- thread 0 acts for the program -------------------------------------------------------------------------------

define linkonce_odr hidden i1 @ditron_leads() #1 {
  %tid = call i32 @ditron_thread_id()
  %r = icmp eq i32 %tid, 0
  ret i1 %r
}

; A release by one thread publishes what all threads stored: they come together before it.
define linkonce_odr hidden void @ditron_barrier_before(i32 %semantic) #0 {
  %release = icmp eq i32 %semantic, 2
  br i1 %release, label %barrier, label %done
barrier:
  call void @ditron_block_barrier()
  br label %done
done:
  ret void
}

define linkonce_odr hidden i32 @ditron_st_once_b8(ptr addrspace(1) %p, i8 %v, i32 %scope, i32 %semantic) #0 {
  call void @ditron_barrier_before(i32 %semantic)
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %stored = call i32 @ditron_st_b8(ptr addrspace(1) %p, i8 %v, i32 %scope, i32 %semantic)
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_once_b16(ptr addrspace(1) %p, i16 %v, i32 %scope, i32 %semantic) #0 {
  call void @ditron_barrier_before(i32 %semantic)
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %stored = call i32 @ditron_st_b16(ptr addrspace(1) %p, i16 %v, i32 %scope, i32 %semantic)
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_once_b32(ptr addrspace(1) %p, i32 %v, i32 %scope, i32 %semantic) #0 {
  call void @ditron_barrier_before(i32 %semantic)
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %stored = call i32 @ditron_st_b32(ptr addrspace(1) %p, i32 %v, i32 %scope, i32 %semantic)
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_once_b64(ptr addrspace(1) %p, i64 %v, i32 %scope, i32 %semantic) #0 {
  call void @ditron_barrier_before(i32 %semantic)
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %lead, label %done
lead:
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %p, i64 %v, i32 %scope, i32 %semantic)
  br label %done
done:
  ret i32 0
}

; ---- lanes -------------------------------------------------------------------------------------------------------

define linkonce_odr hidden i64 @ditron_shfl_i64(i64 %v, i32 %lane, i32 %mode) #0 {
  %lo = trunc i64 %v to i32
  %top = lshr i64 %v, 32
  %hi = trunc i64 %top to i32
  %a = call i32 @ditron_shfl_i32(i32 %lo, i32 %lane, i32 %mode)
  %b = call i32 @ditron_shfl_i32(i32 %hi, i32 %lane, i32 %mode)
  %a64 = zext i32 %a to i64
  %b64 = zext i32 %b to i64
  %high = shl i64 %b64, 32
  %r = or i64 %high, %a64
  ret i64 %r
}

; ---- signals -----------------------------------------------------------------------------------------------------

define linkonce_odr hidden i1 @ditron_compare(i64 %a, i64 %b, i32 %cmp) #1 {
  %eq = icmp eq i64 %a, %b
  %gt = icmp sgt i64 %a, %b
  %lt = icmp slt i64 %a, %b
  %ne = xor i1 %eq, true
  %ge = xor i1 %lt, true
  %le = xor i1 %gt, true
  %is_eq = icmp eq i32 %cmp, 0
  %is_ne = icmp eq i32 %cmp, 1
  %is_gt = icmp eq i32 %cmp, 2
  %is_ge = icmp eq i32 %cmp, 3
  %is_lt = icmp eq i32 %cmp, 4
  %r4 = select i1 %is_lt, i1 %lt, i1 %le
  %r3 = select i1 %is_ge, i1 %ge, i1 %r4
  %r2 = select i1 %is_gt, i1 %gt, i1 %r3
  %r1 = select i1 %is_ne, i1 %ne, i1 %r2
  %r = select i1 %is_eq, i1 %eq, i1 %r1
  ret i1 %r
}

; The calling thread polls until the comparison holds. The vendor says how a poll and its acquire look.
define linkonce_odr hidden void @ditron_spin(ptr addrspace(1) %p, i64 %value, i32 %cmp, i32 %scope, i32 %semantic) #0 {
entry:
  br label %poll
poll:
  %seen = call i64 @ditron_poll(ptr addrspace(1) %p, i32 %scope, i32 %semantic)
  %holds = call i1 @ditron_compare(i64 %seen, i64 %value, i32 %cmp)
  br i1 %holds, label %done, label %poll
done:
  call void @ditron_polled(i32 %scope, i32 %semantic)
  ret void
}

; All of signals[0..count) satisfy the comparison when this returns, in every thread of the program: thread t watches
; t, t + num_threads, ...; the barrier hands what one thread acquired to all. Returns the token, which is 0.
define linkonce_odr hidden i32 @ditron_wait(ptr addrspace(1) %signals, i32 %count, i64 %value, i32 %cmp, i32 %scope, i32 %semantic) #0 {
entry:
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %any = icmp slt i32 %tid, %count
  br i1 %any, label %watch, label %done
watch:
  %i = phi i32 [ %tid, %entry ], [ %next, %watch ]
  %p = getelementptr i64, ptr addrspace(1) %signals, i32 %i
  call void @ditron_spin(ptr addrspace(1) %p, i64 %value, i32 %cmp, i32 %scope, i32 %semantic)
  %next = add i32 %i, %threads
  %more = icmp slt i32 %next, %count
  br i1 %more, label %watch, label %done
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; The calling thread updates the signal at `p`, a mapped address; relaxed, the caller has fenced.
define linkonce_odr hidden void @ditron_signal(ptr addrspace(1) %p, i64 %value, i32 %op, i32 %scope) #0 {
  %is_add = icmp eq i32 %op, 1
  br i1 %is_add, label %add, label %set
add:
  call void @ditron_add_b64(ptr addrspace(1) %p, i64 %value, i32 %scope)
  ret void
set:
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %p, i64 %value, i32 %scope, i32 0)
  ret void
}

; ---- copies ------------------------------------------------------------------------------------------------------

; Thread `first` of `step` copies its share: 16 bytes at a time when both addresses allow, eight or four of them in flight so
; that the latency of a load is paid once for as many; the rest byte by byte.
define linkonce_odr hidden void @ditron_copy(ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %first, i32 %step) #0 {
entry:
  %first64 = zext i32 %first to i64
  %step64 = zext i32 %step to i64
  %d = ptrtoint ptr addrspace(1) %dst to i64
  %s = ptrtoint ptr addrspace(1) %src to i64
  %both = or i64 %d, %s
  %low = and i64 %both, 15
  %aligned = icmp eq i64 %low, 0
  %whole = lshr i64 %bytes, 4
  %vectors = select i1 %aligned, i64 %whole, i64 0
  %step3 = mul i64 %step64, 3
  %step4 = shl i64 %step64, 2
  %step7 = mul i64 %step64, 7
  %step8 = shl i64 %step64, 3
  br label %eights
eights:
  %eight.i0 = phi i64 [ %first64, %entry ], [ %eight.after, %eight ]
  %eight.last = add i64 %eight.i0, %step7
  %eight.all = icmp ult i64 %eight.last, %vectors
  br i1 %eight.all, label %eight, label %quads
eight:
  %eight.i1 = add i64 %eight.i0, %step64
  %eight.i2 = add i64 %eight.i1, %step64
  %eight.i3 = add i64 %eight.i2, %step64
  %eight.i4 = add i64 %eight.i3, %step64
  %eight.i5 = add i64 %eight.i4, %step64
  %eight.i6 = add i64 %eight.i5, %step64
  %eight.i7 = add i64 %eight.i6, %step64
  %eight.s0 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i0
  %eight.s1 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i1
  %eight.s2 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i2
  %eight.s3 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i3
  %eight.s4 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i4
  %eight.s5 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i5
  %eight.s6 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i6
  %eight.s7 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %eight.i7
  %eight.v0 = load <4 x i32>, ptr addrspace(1) %eight.s0, align 16
  %eight.v1 = load <4 x i32>, ptr addrspace(1) %eight.s1, align 16
  %eight.v2 = load <4 x i32>, ptr addrspace(1) %eight.s2, align 16
  %eight.v3 = load <4 x i32>, ptr addrspace(1) %eight.s3, align 16
  %eight.v4 = load <4 x i32>, ptr addrspace(1) %eight.s4, align 16
  %eight.v5 = load <4 x i32>, ptr addrspace(1) %eight.s5, align 16
  %eight.v6 = load <4 x i32>, ptr addrspace(1) %eight.s6, align 16
  %eight.v7 = load <4 x i32>, ptr addrspace(1) %eight.s7, align 16
  %eight.d0 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i0
  %eight.d1 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i1
  %eight.d2 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i2
  %eight.d3 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i3
  %eight.d4 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i4
  %eight.d5 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i5
  %eight.d6 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i6
  %eight.d7 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %eight.i7
  store <4 x i32> %eight.v0, ptr addrspace(1) %eight.d0, align 16
  store <4 x i32> %eight.v1, ptr addrspace(1) %eight.d1, align 16
  store <4 x i32> %eight.v2, ptr addrspace(1) %eight.d2, align 16
  store <4 x i32> %eight.v3, ptr addrspace(1) %eight.d3, align 16
  store <4 x i32> %eight.v4, ptr addrspace(1) %eight.d4, align 16
  store <4 x i32> %eight.v5, ptr addrspace(1) %eight.d5, align 16
  store <4 x i32> %eight.v6, ptr addrspace(1) %eight.d6, align 16
  store <4 x i32> %eight.v7, ptr addrspace(1) %eight.d7, align 16
  %eight.after = add i64 %eight.i0, %step8
  br label %eights
quads:
  %quad.i0 = phi i64 [ %eight.i0, %eights ], [ %quad.after, %quad ]
  %quad.last = add i64 %quad.i0, %step3
  %quad.all = icmp ult i64 %quad.last, %vectors
  br i1 %quad.all, label %quad, label %singles
quad:
  %quad.i1 = add i64 %quad.i0, %step64
  %quad.i2 = add i64 %quad.i1, %step64
  %quad.i3 = add i64 %quad.i2, %step64
  %quad.s0 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %quad.i0
  %quad.s1 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %quad.i1
  %quad.s2 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %quad.i2
  %quad.s3 = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %quad.i3
  %quad.v0 = load <4 x i32>, ptr addrspace(1) %quad.s0, align 16
  %quad.v1 = load <4 x i32>, ptr addrspace(1) %quad.s1, align 16
  %quad.v2 = load <4 x i32>, ptr addrspace(1) %quad.s2, align 16
  %quad.v3 = load <4 x i32>, ptr addrspace(1) %quad.s3, align 16
  %quad.d0 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %quad.i0
  %quad.d1 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %quad.i1
  %quad.d2 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %quad.i2
  %quad.d3 = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %quad.i3
  store <4 x i32> %quad.v0, ptr addrspace(1) %quad.d0, align 16
  store <4 x i32> %quad.v1, ptr addrspace(1) %quad.d1, align 16
  store <4 x i32> %quad.v2, ptr addrspace(1) %quad.d2, align 16
  store <4 x i32> %quad.v3, ptr addrspace(1) %quad.d3, align 16
  %quad.after = add i64 %quad.i0, %step4
  br label %quads
singles:
  %i = phi i64 [ %quad.i0, %quads ], [ %i.next, %single ]
  %one = icmp ult i64 %i, %vectors
  br i1 %one, label %single, label %rest
single:
  %sp = getelementptr <4 x i32>, ptr addrspace(1) %src, i64 %i
  %dp = getelementptr <4 x i32>, ptr addrspace(1) %dst, i64 %i
  %v = load <4 x i32>, ptr addrspace(1) %sp, align 16
  store <4 x i32> %v, ptr addrspace(1) %dp, align 16
  %i.next = add i64 %i, %step64
  br label %singles
rest:
  %copied = shl i64 %vectors, 4
  %begin = add i64 %copied, %first64
  br label %bytewise
bytewise:
  %j = phi i64 [ %begin, %rest ], [ %j.next, %byte ]
  %more = icmp ult i64 %j, %bytes
  br i1 %more, label %byte, label %done
byte:
  %sb = getelementptr i8, ptr addrspace(1) %src, i64 %j
  %db = getelementptr i8, ptr addrspace(1) %dst, i64 %j
  %b = load i8, ptr addrspace(1) %sb, align 1
  store i8 %b, ptr addrspace(1) %db, align 1
  %j.next = add i64 %j, %step64
  br label %bytewise
done:
  ret void
}

; How many threads of the program carry out one transfer: thread 0, the first warp, all. It happens once in any case.
define linkonce_odr hidden i32 @ditron_threads_of(i32 %granularity) #1 {
  %threads = call i32 @ditron_num_threads()
  %lanes = call i32 @ditron_warp_size()
  %is_block = icmp eq i32 %granularity, 2
  %is_warp = icmp eq i32 %granularity, 1
  %a = select i1 %is_warp, i32 %lanes, i32 1
  %r = select i1 %is_block, i32 %threads, i32 %a
  ret i32 %r
}

define linkonce_odr hidden i1 @ditron_joins(i32 %granularity) #1 {
  %tid = call i32 @ditron_thread_id()
  %n = call i32 @ditron_threads_of(i32 %granularity)
  %in = icmp ult i32 %tid, %n
  %is_block = icmp eq i32 %granularity, 2
  %r = or i1 %is_block, %in  ; all of them, known at compile time: no branch around a barrier
  ret i1 %r
}

; The program copies once. The barrier before lets the copying threads read what the others stored.
define linkonce_odr hidden void @ditron_copy_together(ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %granularity) #0 {
  call void @ditron_block_barrier()
  %tid = call i32 @ditron_thread_id()
  %n = call i32 @ditron_threads_of(i32 %granularity)
  %joins = icmp ult i32 %tid, %n
  br i1 %joins, label %copy, label %done
copy:
  call void @ditron_copy(ptr addrspace(1) %dst, ptr addrspace(1) %src, i64 %bytes, i32 %tid, i32 %n)
  br label %done
done:
  ret void
}

; ---- the barrier between ranks that map each other ---------------------------------------------------------------

; One program per rank calls it. Area at heap + slot 10: int64 arrived[2][num_ranks], epoch[2]; `which` 0 for the group, 1 for
; the ranks of this node. A rank writes the new epoch into its entry at every peer and waits for every peer's entry
; here. Epochs only grow, so nothing is reset and a rank that runs ahead into the next barrier does no harm.
define linkonce_odr hidden void @ditron_barrier_mapped(ptr addrspace(1) %ctx, i32 %which) #0 {
entry:
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %n32 = trunc i64 %n to i32
  %me = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 0)
  %heap = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 8)
  %offset = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 10)
  %address = add i64 %heap, %offset
  %area = inttoptr i64 %address to ptr addrspace(1)
  %which64 = zext i32 %which to i64
  %row = mul i64 %which64, %n
  %two_n = shl i64 %n, 1
  %epoch_index = add i64 %two_n, %which64
  %epoch_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %epoch_index
  %last = call i64 @ditron_ld_b64(ptr addrspace(1) %epoch_ptr, i32 0, i32 0)
  %epoch = add i64 %last, 1
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  ; What the whole program stored is visible at the peers before they see the epoch; and no thread advances
  ; the epoch before all have read it.
  call void @ditron_fence_scope(i32 2)
  call void @ditron_block_barrier()
  call void @ditron_fence_scope(i32 2)
  %mine = add i64 %row, %me
  %mine_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %mine
  %any = icmp slt i32 %tid, %n32
  br i1 %any, label %peer, label %done
peer:
  %r = phi i32 [ %tid, %entry ], [ %r.next, %next ]
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %r)
  %mapped = icmp ne i64 %base, 0
  br i1 %mapped, label %arrive, label %unmapped
unmapped:
  ; Only the barrier of the node may pass over ranks that are not mapped.
  %node_only = icmp eq i32 %which, 1
  br i1 %node_only, label %next, label %unreachable_peer
unreachable_peer:
  call void @llvm.trap()
  unreachable
arrive:
  %there = call ptr addrspace(1) @ditron_translate(ptr addrspace(1) %ctx, ptr addrspace(1) %mine_ptr, i64 %base)
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %there, i64 %epoch, i32 2, i32 0)
  %r64 = zext i32 %r to i64
  %theirs = add i64 %row, %r64
  %theirs_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %theirs
  call void @ditron_spin(ptr addrspace(1) %theirs_ptr, i64 %epoch, i32 3, i32 2, i32 1)
  br label %next
next:
  %r.next = add i32 %r, %threads
  %more = icmp slt i32 %r.next, %n32
  br i1 %more, label %peer, label %done
done:
  ; All threads have read the epoch; the barrier that ends this one keeps all out of the next before it is stored.
  %first = icmp eq i32 %tid, 0
  br i1 %first, label %advance, label %leave
advance:
  %advanced = call i32 @ditron_st_b64(ptr addrspace(1) %epoch_ptr, i64 %epoch, i32 0, i32 0)
  br label %leave
leave:
  call void @ditron_block_barrier()
  ret void
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged

!0 = !{}
