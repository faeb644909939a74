; The sanitizer: waits with a time limit, and remote accesses that are checked first. Linked only with `sanitize`.
;
; A wait that times out, or an access that is wrong, sets the word `poison` of its own heap and of every heap mapped here to its
; group rank + 1, and writes a record for the host. Every wait of the group polls that word too; then its program exits the kernel,
; all threads together: a kernel that exits leaves the GPU and the process usable, a trap would not.
;
; Two words follow the barrier area's int64[2 n + 2]: poison, number of records. The report (slot 11) is host memory, mapped here:
; 32 records of 16 int64, which survive whatever happens to the GPU (ditron/sanitizer/report.py reads them). The first is for the
; failure on this rank, the others for the waits that it ended:
;   0 kind, written last  1 location, an id of the primitive's Python line  2 3 4 program id  5 thread  6 address
;   7 cmp  8 expected  9 actual  10 peer (group rank) or -1  11 bytes  12 ns waited  13 the rank that failed first, + 1
; kinds: 1 this wait timed out first  2 this wait was ended by another failure  3 rank out of range  4 rank not mapped
;   5 address outside of the symmetric heap  6 the world's ranks are not reachable
; Slot 13 of the context is the limit in ns.

declare i32 @ditron_thread_id()
declare i32 @ditron_num_threads()
declare i32 @ditron_program_id(i32)
declare i64 @ditron_clock_ns()
declare i1 @ditron_barrier_any(i1, ptr addrspace(1))
declare void @ditron_exit()
declare void @ditron_fence_scope(i32)
declare i64 @ditron_poll(ptr addrspace(1), i32, i32)
declare void @ditron_polled(i32, i32)
declare i64 @ditron_ld_b64(ptr addrspace(1), i32, i32)
declare i32 @ditron_st_b64(ptr addrspace(1), i64, i32, i32)
declare i64 @ditron_slot(ptr addrspace(1), i64)
declare i64 @ditron_peer_base(ptr addrspace(1), i32)
declare i1 @ditron_leads()
declare i1 @ditron_compare(i64, i64, i32)
declare i64 @ditron_ll_flag(i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i32 @ditron_ll_get(ptr addrspace(1), ptr addrspace(1), i64, i64)
declare i32 @ditron_ll128_get(ptr addrspace(1), ptr addrspace(1), i64, i64)
declare i32 @ditron_quiet()
declare i32 @ditron_barrier(ptr addrspace(1), i32)
declare i32 @ditron_signal_op(ptr addrspace(1), ptr addrspace(1), i64, i32, i32)
declare ptr addrspace(1) @ditron_symm_at(ptr addrspace(1), ptr addrspace(1), i32)
declare i64 @ditron_symm_distance(ptr addrspace(1), ptr addrspace(1), i32, i64)

; ---- the report --------------------------------------------------------------------------------------------------

; The poison word of the heap that begins at `base`.
define linkonce_odr hidden ptr addrspace(1) @ditron_poison_at(ptr addrspace(1) %ctx, i64 %base) #1 {
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %offset = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 10)
  %bytes = shl i64 %n, 4
  %area = add i64 %base, %offset
  %behind = add i64 %area, %bytes
  %address = add i64 %behind, 16
  %p = inttoptr i64 %address to ptr addrspace(1)
  ret ptr addrspace(1) %p
}

define linkonce_odr hidden ptr addrspace(1) @ditron_poison_word(ptr addrspace(1) %ctx) #1 {
  %base = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 8)
  %p = call ptr addrspace(1) @ditron_poison_at(ptr addrspace(1) %ctx, i64 %base)
  ret ptr addrspace(1) %p
}

; Sets `poison` on every rank that is mapped; returns whether this thread is the first to do so on this rank.
define linkonce_odr hidden i1 @ditron_poison(ptr addrspace(1) %ctx) #0 {
entry:
  %word = call ptr addrspace(1) @ditron_poison_word(ptr addrspace(1) %ctx)
  %rank = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 0)
  %origin = add i64 %rank, 1
  %pair = cmpxchg ptr addrspace(1) %word, i64 0, i64 %origin acq_rel monotonic, align 8
  %first = extractvalue { i64, i1 } %pair, 1
  br i1 %first, label %tell, label %done
tell:
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  br label %peer
peer:
  %r = phi i64 [ 0, %tell ], [ %r.next, %next ]
  %r32 = trunc i64 %r to i32
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %r32)
  %mapped = icmp ne i64 %base, 0
  br i1 %mapped, label %store, label %next
store:
  %there = call ptr addrspace(1) @ditron_poison_at(ptr addrspace(1) %ctx, i64 %base)
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %there, i64 %origin, i32 2, i32 0)
  br label %next
next:
  %r.next = add i64 %r, 1
  %more = icmp slt i64 %r.next, %n
  br i1 %more, label %peer, label %done
done:
  ret i1 %first
}

define linkonce_odr hidden void @ditron_put(ptr addrspace(1) %record, i64 %index, i64 %value) #0 {
  %p = getelementptr i64, ptr addrspace(1) %record, i64 %index
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %p, i64 %value, i32 2, i32 0)
  ret void
}

; Writes a record while there is room. The first one is reserved for the failure, however many waits it has ended by then.
define linkonce_odr hidden void @ditron_report(ptr addrspace(1) %ctx, i64 %kind, i64 %place, ptr addrspace(1) %p, i32 %cmp, i64 %expected, i64 %actual, i32 %peer, i64 %bytes, i64 %ns) #0 {
entry:
  %word = call ptr addrspace(1) @ditron_poison_word(ptr addrspace(1) %ctx)
  %waits = icmp eq i64 %kind, 2
  br i1 %waits, label %next, label %write
next:
  %count = getelementptr i64, ptr addrspace(1) %word, i64 1
  %before = atomicrmw add ptr addrspace(1) %count, i64 1 monotonic, align 8
  %free = add i64 %before, 1
  %room = icmp ult i64 %free, 32
  br i1 %room, label %write, label %done
write:
  %slot = phi i64 [ 0, %entry ], [ %free, %next ]
  %report = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 11)
  %first = inttoptr i64 %report to ptr addrspace(1)
  %index = shl i64 %slot, 4
  %record = getelementptr i64, ptr addrspace(1) %first, i64 %index
  %x = call i32 @ditron_program_id(i32 0)
  %y = call i32 @ditron_program_id(i32 1)
  %z = call i32 @ditron_program_id(i32 2)
  %tid = call i32 @ditron_thread_id()
  %origin = call i64 @ditron_ld_b64(ptr addrspace(1) %word, i32 2, i32 0)
  %x64 = zext i32 %x to i64
  %y64 = zext i32 %y to i64
  %z64 = zext i32 %z to i64
  %tid64 = zext i32 %tid to i64
  %address = ptrtoint ptr addrspace(1) %p to i64
  %cmp64 = zext i32 %cmp to i64
  %peer64 = sext i32 %peer to i64
  call void @ditron_put(ptr addrspace(1) %record, i64 1, i64 %place)
  call void @ditron_put(ptr addrspace(1) %record, i64 2, i64 %x64)
  call void @ditron_put(ptr addrspace(1) %record, i64 3, i64 %y64)
  call void @ditron_put(ptr addrspace(1) %record, i64 4, i64 %z64)
  call void @ditron_put(ptr addrspace(1) %record, i64 5, i64 %tid64)
  call void @ditron_put(ptr addrspace(1) %record, i64 6, i64 %address)
  call void @ditron_put(ptr addrspace(1) %record, i64 7, i64 %cmp64)
  call void @ditron_put(ptr addrspace(1) %record, i64 8, i64 %expected)
  call void @ditron_put(ptr addrspace(1) %record, i64 9, i64 %actual)
  call void @ditron_put(ptr addrspace(1) %record, i64 10, i64 %peer64)
  call void @ditron_put(ptr addrspace(1) %record, i64 11, i64 %bytes)
  call void @ditron_put(ptr addrspace(1) %record, i64 12, i64 %ns)
  call void @ditron_put(ptr addrspace(1) %record, i64 13, i64 %origin)
  call void @ditron_fence_scope(i32 2)
  call void @ditron_put(ptr addrspace(1) %record, i64 0, i64 %kind)
  br label %done
done:
  ret void
}

; A barrier of the program; if `failed` in any thread, all exit the kernel.
define linkonce_odr hidden void @ditron_leave_if(ptr addrspace(1) %ctx, i1 %failed) #0 {
  %word = call ptr addrspace(1) @ditron_poison_word(ptr addrspace(1) %ctx)
  %any = call i1 @ditron_barrier_any(i1 %failed, ptr addrspace(1) %word)
  br i1 %any, label %leave, label %stay
leave:
  call void @ditron_exit()
  unreachable
stay:
  ret void
}

; ---- waits -------------------------------------------------------------------------------------------------------

; As ditron_spin, for the bits of the word at `p` above the lowest `low`; returns whether the comparison was true before the time
; limit, and before another wait failed.
define linkonce_odr hidden i1 @ditron_sanitizer_spin(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %low, i64 %value, i32 %cmp, i32 %scope, i32 %semantic, i64 %place, i32 %peer) #0 {
entry:
  %word = call ptr addrspace(1) @ditron_poison_word(ptr addrspace(1) %ctx)
  %limit = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 13)
  %start = call i64 @ditron_clock_ns()
  br label %poll
poll:
  %word_seen = call i64 @ditron_poll(ptr addrspace(1) %p, i32 %scope, i32 %semantic)
  %seen = lshr i64 %word_seen, %low
  %holds = call i1 @ditron_compare(i64 %seen, i64 %value, i32 %cmp)
  br i1 %holds, label %done, label %late
late:
  %now = call i64 @ditron_clock_ns()
  %waited = sub i64 %now, %start
  %origin = call i64 @ditron_ld_b64(ptr addrspace(1) %word, i32 2, i32 0)
  %stopped = icmp ne i64 %origin, 0
  br i1 %stopped, label %give_up, label %own
own:
  %over = icmp ugt i64 %waited, %limit
  br i1 %over, label %expired, label %poll
expired:
  %first = call i1 @ditron_poison(ptr addrspace(1) %ctx)
  %kind = select i1 %first, i64 1, i64 2
  br label %give_up
give_up:
  %as = phi i64 [ 2, %late ], [ %kind, %expired ]
  call void @ditron_report(ptr addrspace(1) %ctx, i64 %as, i64 %place, ptr addrspace(1) %p, i32 %cmp, i64 %value, i64 %seen, i32 %peer, i64 0, i64 %waited)
  ret i1 false
done:
  call void @ditron_polled(i32 %scope, i32 %semantic)
  ret i1 true
}

define linkonce_odr hidden i32 @ditron_sanitizer_wait(ptr addrspace(1) %ctx, ptr addrspace(1) %signals, i32 %count, i64 %value, i32 %cmp, i32 %scope, i32 %semantic, i64 %place) #0 {
entry:
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %any = icmp slt i32 %tid, %count
  br i1 %any, label %watch, label %done
watch:
  %i = phi i32 [ %tid, %entry ], [ %next, %held ]
  %p = getelementptr i64, ptr addrspace(1) %signals, i32 %i
  %holds = call i1 @ditron_sanitizer_spin(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 0, i64 %value, i32 %cmp, i32 %scope, i32 %semantic, i64 %place, i32 -1)
  br i1 %holds, label %held, label %done
held:
  %next = add i32 %i, %threads
  %more = icmp slt i32 %next, %count
  br i1 %more, label %watch, label %done
done:
  %failed = phi i1 [ false, %entry ], [ false, %held ], [ true, %watch ]
  call void @ditron_leave_if(ptr addrspace(1) %ctx, i1 %failed)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_sanitizer_signal_wait_until(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i64 %value, i32 %cmp, i64 %place) #0 {
  %r = call i32 @ditron_sanitizer_wait(ptr addrspace(1) %ctx, ptr addrspace(1) %signal, i32 1, i64 %value, i32 %cmp, i32 2, i32 1, i64 %place)
  ret i32 %r
}

; Waits for `count` flags, one in every `stride` words from `flags` on, above the lowest `low` bits; returns whether all were set.
define linkonce_odr hidden i1 @ditron_sanitizer_flags(ptr addrspace(1) %ctx, ptr addrspace(1) %flags, i64 %count, i64 %stride, i64 %low, i64 %value, i64 %place) #0 {
entry:
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %first = zext i32 %tid to i64
  %step = zext i32 %threads to i64
  %any = icmp ult i64 %first, %count
  br i1 %any, label %watch, label %done
watch:
  %i = phi i64 [ %first, %entry ], [ %next, %held ]
  %word = mul i64 %i, %stride
  %p = getelementptr i64, ptr addrspace(1) %flags, i64 %word
  %holds = call i1 @ditron_sanitizer_spin(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %low, i64 %value, i32 0, i32 2, i32 0, i64 %place, i32 -1)
  br i1 %holds, label %held, label %done
held:
  %next = add i64 %i, %step
  %more = icmp ult i64 %next, %count
  br i1 %more, label %watch, label %done
done:
  %failed = phi i1 [ false, %entry ], [ false, %held ], [ true, %watch ]
  call void @ditron_leave_if(ptr addrspace(1) %ctx, i1 %failed)
  %all = xor i1 %failed, true
  ret i1 %all
}

; When all flags are set, the message is read without a time limit.
define linkonce_odr hidden i32 @ditron_sanitizer_ll_get(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch, i64 %place) #0 {
  %flag = call i64 @ditron_ll_flag(i64 %epoch)
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %up = add i64 %some, 3
  %count = lshr i64 %up, 2
  %all = call i1 @ditron_sanitizer_flags(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, i64 %count, i64 1, i64 32, i64 %flag, i64 %place)
  br i1 %all, label %take, label %left
take:
  %r = call i32 @ditron_ll_get(ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch)
  br label %left
left:
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_sanitizer_ll128_get(ptr addrspace(1) %ctx, ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch, i64 %place) #0 {
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %up = add i64 %some, 119
  %count = udiv i64 %up, 120
  %flags = getelementptr i64, ptr addrspace(1) %packets, i64 15
  %all = call i1 @ditron_sanitizer_flags(ptr addrspace(1) %ctx, ptr addrspace(1) %flags, i64 %count, i64 16, i64 0, i64 %epoch, i64 %place)
  br i1 %all, label %take, label %left
take:
  %r = call i32 @ditron_ll128_get(ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch)
  br label %left
left:
  ret i32 0
}

; The barrier of core.ll, under every transport: signals are the transport's, waits are those above. A barrier of a world that
; is larger than the group is the transport's own and has no time limit; `%direct`: the transport has none (p2p).
define linkonce_odr hidden i32 @ditron_sanitizer_barrier(ptr addrspace(1) %ctx, i32 %team, i32 %direct, i64 %place) #0 {
entry:
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %world = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 6)
  %is_world = icmp eq i32 %team, 2
  %differ = icmp ne i64 %n, %world
  %larger = and i1 %is_world, %differ
  br i1 %larger, label %beyond, label %ours
beyond:
  %cannot = icmp ne i32 %direct, 0
  br i1 %cannot, label %refuse, label %theirs
refuse:
  call void @ditron_refuse(ptr addrspace(1) %ctx, i64 6, ptr addrspace(1) null, i64 0, i32 -1, i64 %place)
  ret i32 0
theirs:
  %unlimited = call i32 @ditron_barrier(ptr addrspace(1) %ctx, i32 %team)
  ret i32 %unlimited
ours:
  %node_only = icmp eq i32 %team, 1
  %n32 = trunc i64 %n to i32
  %me = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 0)
  %heap = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 8)
  %offset = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 10)
  %address = add i64 %heap, %offset
  %area = inttoptr i64 %address to ptr addrspace(1)
  %which = zext i1 %node_only to i64
  %row = mul i64 %which, %n
  %two_n = shl i64 %n, 1
  %epoch_index = add i64 %two_n, %which
  %epoch_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %epoch_index
  %mine = add i64 %row, %me
  %mine_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %mine
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %last = call i64 @ditron_ld_b64(ptr addrspace(1) %epoch_ptr, i32 0, i32 0)
  %epoch = add i64 %last, 1
  %quiet = call i32 @ditron_quiet()  ; ends with a barrier of the program: all threads have read the epoch
  %leader = call i1 @ditron_leads()
  br i1 %leader, label %advance, label %tell
advance:
  %advanced = call i32 @ditron_st_b64(ptr addrspace(1) %epoch_ptr, i64 %epoch, i32 0, i32 0)
  br label %tell
tell:
  %t = phi i32 [ 0, %ours ], [ 0, %advance ], [ %t.next, %told ]
  %t.base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %t)
  %t.unmapped = icmp eq i64 %t.base, 0
  %t.skip = and i1 %t.unmapped, %node_only
  br i1 %t.skip, label %told, label %arrive
arrive:
  %signalled = call i32 @ditron_signal_op(ptr addrspace(1) %ctx, ptr addrspace(1) %mine_ptr, i64 %epoch, i32 %t, i32 0)
  br label %told
told:
  %t.next = add i32 %t, 1
  %t.more = icmp slt i32 %t.next, %n32
  br i1 %t.more, label %tell, label %begin
begin:
  %any = icmp slt i32 %tid, %n32
  br i1 %any, label %peer, label %done
peer:
  %r = phi i32 [ %tid, %begin ], [ %r.next, %next ]
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %r)
  %unmapped = icmp eq i64 %base, 0
  %skip = and i1 %unmapped, %node_only
  br i1 %skip, label %next, label %watch
watch:
  %r64 = zext i32 %r to i64
  %their_index = add i64 %row, %r64
  %their_ptr = getelementptr i64, ptr addrspace(1) %area, i64 %their_index
  %came = call i1 @ditron_sanitizer_spin(ptr addrspace(1) %ctx, ptr addrspace(1) %their_ptr, i64 0, i64 %epoch, i32 3, i32 2, i32 1, i64 %place, i32 %r)
  br i1 %came, label %next, label %done
next:
  %r.next = add i32 %r, %threads
  %more = icmp slt i32 %r.next, %n32
  br i1 %more, label %peer, label %done
done:
  %failed = phi i1 [ false, %begin ], [ false, %next ], [ true, %watch ]
  call void @ditron_leave_if(ptr addrspace(1) %ctx, i1 %failed)
  ret i32 0
}

; ---- remote accesses ---------------------------------------------------------------------------------------------

; The calling thread reports, unless another one has, and exits the kernel. Convergent threads exit together.
define linkonce_odr hidden void @ditron_refuse(ptr addrspace(1) %ctx, i64 %kind, ptr addrspace(1) %p, i64 %bytes, i32 %rank, i64 %place) #0 {
  %first = call i1 @ditron_poison(ptr addrspace(1) %ctx)
  br i1 %first, label %report, label %leave
report:
  call void @ditron_report(ptr addrspace(1) %ctx, i64 %kind, i64 %place, ptr addrspace(1) %p, i32 0, i64 0, i64 0, i32 %rank, i64 %bytes, i64 0)
  br label %leave
leave:
  call void @ditron_exit()
  unreachable
}

; Returns if `bytes` bytes at `p` lie in this rank's heap and `rank` is one of the group, mapped here if the access needs that.
define linkonce_odr hidden i32 @ditron_check_remote(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 %bytes, i32 %rank, i32 %direct, i64 %place) #0 {
entry:
  %n = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 1)
  %n32 = trunc i64 %n to i32
  %known = icmp ult i32 %rank, %n32
  br i1 %known, label %where, label %refuse
where:
  %heap = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 8)
  %size = call i64 @ditron_slot(ptr addrspace(1) %ctx, i64 9)
  %address = ptrtoint ptr addrspace(1) %p to i64
  %offset = sub i64 %address, %heap
  %room = sub i64 %size, %bytes
  %fits = icmp ule i64 %bytes, %size
  %inside = icmp ule i64 %offset, %room
  %good = and i1 %fits, %inside
  %nothing = icmp eq i64 %bytes, 0
  %fine = or i1 %good, %nothing
  br i1 %fine, label %reach, label %refuse
reach:
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %rank)
  %unmapped = icmp eq i64 %base, 0
  %needed = icmp ne i32 %direct, 0
  %lost = and i1 %unmapped, %needed
  br i1 %lost, label %refuse, label %done
refuse:
  %kind = phi i64 [ 3, %entry ], [ 5, %where ], [ 4, %reach ]
  call void @ditron_refuse(ptr addrspace(1) %ctx, i64 %kind, ptr addrspace(1) %p, i64 %bytes, i32 %rank, i64 %place)
  br label %done
done:
  ret i32 0
}

define linkonce_odr hidden ptr addrspace(1) @ditron_sanitizer_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank, i64 %place) #0 {
  %checked = call i32 @ditron_check_remote(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 1, i32 %rank, i32 1, i64 %place)
  %r = call ptr addrspace(1) @ditron_symm_at(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank)
  ret ptr addrspace(1) %r
}

define linkonce_odr hidden i64 @ditron_sanitizer_symm_distance(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank, i64 %bytes, i64 %place) #0 {
  %checked = call i32 @ditron_check_remote(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i64 1, i32 %rank, i32 1, i64 %place)
  %r = call i64 @ditron_symm_distance(ptr addrspace(1) %ctx, ptr addrspace(1) %p, i32 %rank, i64 %bytes)
  ret i64 %r
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
