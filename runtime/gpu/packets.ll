; Packets: data and flag in one access (ditron.ll_put, ditron.ll_get), for every transport, to ranks that are mapped here.
;
; ll     8 bytes: 4 of the message, then the low 32 bits of the epoch. Two of them are one access, as an aligned 8-byte half of it
;        is never torn. The last pair is always whole.
; ll128  a line of 128 bytes by 8 neighbouring lanes, 16 each: 120 of the message, then the epoch. The link must keep a warp's
;        store of a line whole, and a warp's load of a line must not be torn: NVLink and NVIDIA's L2.
;
; The flag travels with the data, so nothing is fenced: accesses are relaxed, and the reader polls the data itself. The barrier before
; a put lets every thread send what the others stored, the one after lets them overwrite it; those around a get do the same for `dst`.

declare i32 @ditron_thread_id()
declare i32 @ditron_num_threads()
declare i32 @ditron_warp_size()
declare i64 @ditron_ballot(i32)
declare void @ditron_warp_sync()
declare void @ditron_block_barrier()
declare i64 @ditron_peer_base(ptr addrspace(1), i32)
declare ptr addrspace(1) @ditron_translate(ptr addrspace(1), ptr addrspace(1), i64)
declare void @ditron_require_mapped(ptr addrspace(1))
declare { i64, i64 } @ditron_ld_pair(ptr addrspace(1))
declare void @ditron_st_pair(ptr addrspace(1), i64, i64)
declare void @llvm.trap()
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)

; Traps unless `packets` is a multiple of 128.
define linkonce_odr hidden void @ditron_require_line(ptr addrspace(1) %packets) #0 {
  %address = ptrtoint ptr addrspace(1) %packets to i64
  %low = and i64 %address, 127
  %bad = icmp ne i64 %low, 0
  br i1 %bad, label %trap, label %good
trap:
  call void @llvm.trap()
  unreachable
good:
  ret void
}

; Packet memory of that name on `rank`, which must be mapped here.
define linkonce_odr hidden ptr addrspace(1) @ditron_packets_at(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, i32 %rank) #0 {
  %base = call i64 @ditron_peer_base(ptr addrspace(1) %ctx, i32 %rank)
  %there = call ptr addrspace(1) @ditron_translate(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, i64 %base)
  call void @ditron_require_mapped(ptr addrspace(1) %there)
  call void @ditron_require_line(ptr addrspace(1) %there)
  ret ptr addrspace(1) %there
}

; The flag of ll. 0 is the initial value of memory, so epoch 0 is encoded as 2^31.
define linkonce_odr hidden i64 @ditron_ll_flag(i64 %epoch) #1 {
  %low = and i64 %epoch, 4294967295
  %zero = icmp eq i64 %low, 0
  %r = select i1 %zero, i64 2147483648, i64 %low
  ret i64 %r
}

; 8 bytes of a message of `bytes` at `offset`, lowest first; what lies beyond its end is 0.
define linkonce_odr hidden i64 @ditron_message_load(ptr addrspace(1) %message, i64 %offset, i64 %bytes) #0 {
entry:
  %p = getelementptr i8, ptr addrspace(1) %message, i64 %offset
  %address = ptrtoint ptr addrspace(1) %p to i64
  %low = and i64 %address, 7
  %aligned = icmp eq i64 %low, 0
  %left = sub i64 %bytes, %offset
  %full = icmp sge i64 %left, 8
  %whole = and i1 %aligned, %full
  br i1 %whole, label %at_once, label %bytewise
at_once:
  %v = load i64, ptr addrspace(1) %p, align 8
  ret i64 %v
bytewise:
  %count = select i1 %full, i64 8, i64 %left
  br label %loop
loop:
  %j = phi i64 [ 0, %bytewise ], [ %j.next, %byte ]
  %so_far = phi i64 [ 0, %bytewise ], [ %with, %byte ]
  %more = icmp slt i64 %j, %count
  br i1 %more, label %byte, label %done
byte:
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %j
  %b = load i8, ptr addrspace(1) %q, align 1
  %wide = zext i8 %b to i64
  %shift = shl i64 %j, 3
  %placed = shl i64 %wide, %shift
  %with = or i64 %so_far, %placed
  %j.next = add i64 %j, 1
  br label %loop
done:
  ret i64 %so_far
}

; The reverse; nothing is written beyond the end.
define linkonce_odr hidden void @ditron_message_store(ptr addrspace(1) %message, i64 %offset, i64 %bytes, i64 %v) #0 {
entry:
  %p = getelementptr i8, ptr addrspace(1) %message, i64 %offset
  %address = ptrtoint ptr addrspace(1) %p to i64
  %low = and i64 %address, 7
  %aligned = icmp eq i64 %low, 0
  %left = sub i64 %bytes, %offset
  %full = icmp sge i64 %left, 8
  %whole = and i1 %aligned, %full
  br i1 %whole, label %at_once, label %bytewise
at_once:
  store i64 %v, ptr addrspace(1) %p, align 8
  ret void
bytewise:
  %count = select i1 %full, i64 8, i64 %left
  br label %loop
loop:
  %j = phi i64 [ 0, %bytewise ], [ %j.next, %byte ]
  %more = icmp slt i64 %j, %count
  br i1 %more, label %byte, label %done
byte:
  %shift = shl i64 %j, 3
  %low8 = lshr i64 %v, %shift
  %b = trunc i64 %low8 to i8
  %q = getelementptr i8, ptr addrspace(1) %p, i64 %j
  store i8 %b, ptr addrspace(1) %q, align 1
  %j.next = add i64 %j, 1
  br label %loop
done:
  ret void
}

; An empty message has a packet too: its flag signals that it was sent.
define linkonce_odr hidden i64 @ditron_ll_pairs(i64 %bytes) #1 {
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %up = add i64 %some, 7
  %pairs = lshr i64 %up, 3
  ret i64 %pairs
}

; Whether a message is 8-byte words.
define linkonce_odr hidden i1 @ditron_message_is_words(ptr addrspace(1) %message, i64 %bytes) #1 {
  %address = ptrtoint ptr addrspace(1) %message to i64
  %both = or i64 %address, %bytes
  %low = and i64 %both, 7
  %r = icmp eq i64 %low, 0
  ret i1 %r
}

; ---- ll: a thread writes and reads two packets, a pair, at a time; where it has more than one, of words, four pairs are in
; flight, so that the latency of a load is paid once for four. Beyond the last pair it loads that one again, and stores nothing.

define linkonce_odr hidden i32 @ditron_ll_put(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, ptr addrspace(1) %src, i64 %bytes, i64 %epoch, i32 %rank) #0 {
entry:
  %there = call ptr addrspace(1) @ditron_packets_at(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, i32 %rank)
  %flag32 = call i64 @ditron_ll_flag(i64 %epoch)
  %flag = shl i64 %flag32, 32
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %first = zext i32 %tid to i64
  %step = zext i32 %threads to i64
  %pairs = call i64 @ditron_ll_pairs(i64 %bytes)
  %last = sub i64 %pairs, 1
  %step4 = shl i64 %step, 2
  %words = call i1 @ditron_message_is_words(ptr addrspace(1) %src, i64 %bytes)
  %long = icmp ugt i64 %pairs, %step
  %by_four = and i1 %words, %long
  call void @ditron_block_barrier()
  br i1 %by_four, label %quads, label %loop
quads:
  %i0 = phi i64 [ %first, %entry ], [ %i.after, %sent ]
  %any = icmp ult i64 %i0, %pairs
  br i1 %any, label %quad, label %done
quad:
  %i1 = add i64 %i0, %step
  %i2 = add i64 %i1, %step
  %i3 = add i64 %i2, %step
  %c1 = call i64 @llvm.umin.i64(i64 %i1, i64 %last)
  %c2 = call i64 @llvm.umin.i64(i64 %i2, i64 %last)
  %c3 = call i64 @llvm.umin.i64(i64 %i3, i64 %last)
  %s0 = getelementptr i64, ptr addrspace(1) %src, i64 %i0
  %s1 = getelementptr i64, ptr addrspace(1) %src, i64 %c1
  %s2 = getelementptr i64, ptr addrspace(1) %src, i64 %c2
  %s3 = getelementptr i64, ptr addrspace(1) %src, i64 %c3
  %v0 = load i64, ptr addrspace(1) %s0, align 8
  %v1 = load i64, ptr addrspace(1) %s1, align 8
  %v2 = load i64, ptr addrspace(1) %s2, align 8
  %v3 = load i64, ptr addrspace(1) %s3, align 8
  %low0 = and i64 %v0, 4294967295
  %high0 = lshr i64 %v0, 32
  %a0 = or i64 %low0, %flag
  %b0 = or i64 %high0, %flag
  %p0 = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %i0
  call void @ditron_st_pair(ptr addrspace(1) %p0, i64 %a0, i64 %b0)
  %more1 = icmp ult i64 %i1, %pairs
  br i1 %more1, label %send1, label %sent
send1:
  %low1 = and i64 %v1, 4294967295
  %high1 = lshr i64 %v1, 32
  %a1 = or i64 %low1, %flag
  %b1 = or i64 %high1, %flag
  %p1 = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %i1
  call void @ditron_st_pair(ptr addrspace(1) %p1, i64 %a1, i64 %b1)
  %more2 = icmp ult i64 %i2, %pairs
  br i1 %more2, label %send2, label %sent
send2:
  %low2 = and i64 %v2, 4294967295
  %high2 = lshr i64 %v2, 32
  %a2 = or i64 %low2, %flag
  %b2 = or i64 %high2, %flag
  %p2 = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %i2
  call void @ditron_st_pair(ptr addrspace(1) %p2, i64 %a2, i64 %b2)
  %more3 = icmp ult i64 %i3, %pairs
  br i1 %more3, label %send3, label %sent
send3:
  %low3 = and i64 %v3, 4294967295
  %high3 = lshr i64 %v3, 32
  %a3 = or i64 %low3, %flag
  %b3 = or i64 %high3, %flag
  %p3 = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %i3
  call void @ditron_st_pair(ptr addrspace(1) %p3, i64 %a3, i64 %b3)
  br label %sent
sent:
  %i.after = add i64 %i0, %step4
  br label %quads
loop:
  %i = phi i64 [ %first, %entry ], [ %i.next, %send ]
  %more = icmp ult i64 %i, %pairs
  br i1 %more, label %send, label %done
send:
  %offset = shl i64 %i, 3
  %v = call i64 @ditron_message_load(ptr addrspace(1) %src, i64 %offset, i64 %bytes)
  %low = and i64 %v, 4294967295
  %high = lshr i64 %v, 32
  %a = or i64 %low, %flag
  %b = or i64 %high, %flag
  %p = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %i
  call void @ditron_st_pair(ptr addrspace(1) %p, i64 %a, i64 %b)
  %i.next = add i64 %i, %step
  br label %loop
done:
  call void @ditron_block_barrier()
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_ll_get(ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch) #0 {
entry:
  call void @ditron_require_line(ptr addrspace(1) %packets)
  %flag = call i64 @ditron_ll_flag(i64 %epoch)
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %first = zext i32 %tid to i64
  %step = zext i32 %threads to i64
  %pairs = call i64 @ditron_ll_pairs(i64 %bytes)
  %last = sub i64 %pairs, 1
  %step4 = shl i64 %step, 2
  %words = call i1 @ditron_message_is_words(ptr addrspace(1) %dst, i64 %bytes)
  %long = icmp ugt i64 %pairs, %step
  %by_four = and i1 %words, %long
  call void @ditron_block_barrier()
  br i1 %by_four, label %quads, label %loop
quads:
  %i0 = phi i64 [ %first, %entry ], [ %i.after, %taken ]
  %any = icmp ult i64 %i0, %pairs
  br i1 %any, label %quad, label %done
quad:
  %i1 = add i64 %i0, %step
  %i2 = add i64 %i1, %step
  %i3 = add i64 %i2, %step
  %c1 = call i64 @llvm.umin.i64(i64 %i1, i64 %last)
  %c2 = call i64 @llvm.umin.i64(i64 %i2, i64 %last)
  %c3 = call i64 @llvm.umin.i64(i64 %i3, i64 %last)
  %p0 = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %i0
  %p1 = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %c1
  %p2 = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %c2
  %p3 = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %c3
  br label %watch
watch:
  %q0 = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p0)
  %q1 = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p1)
  %q2 = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p2)
  %q3 = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p3)
  %a0 = extractvalue { i64, i64 } %q0, 0
  %b0 = extractvalue { i64, i64 } %q0, 1
  %x0 = lshr i64 %a0, 32
  %y0 = lshr i64 %b0, 32
  %x0.here = icmp eq i64 %x0, %flag
  %y0.here = icmp eq i64 %y0, %flag
  %here0 = and i1 %x0.here, %y0.here
  %a1 = extractvalue { i64, i64 } %q1, 0
  %b1 = extractvalue { i64, i64 } %q1, 1
  %x1 = lshr i64 %a1, 32
  %y1 = lshr i64 %b1, 32
  %x1.here = icmp eq i64 %x1, %flag
  %y1.here = icmp eq i64 %y1, %flag
  %here1 = and i1 %x1.here, %y1.here
  %a2 = extractvalue { i64, i64 } %q2, 0
  %b2 = extractvalue { i64, i64 } %q2, 1
  %x2 = lshr i64 %a2, 32
  %y2 = lshr i64 %b2, 32
  %x2.here = icmp eq i64 %x2, %flag
  %y2.here = icmp eq i64 %y2, %flag
  %here2 = and i1 %x2.here, %y2.here
  %a3 = extractvalue { i64, i64 } %q3, 0
  %b3 = extractvalue { i64, i64 } %q3, 1
  %x3 = lshr i64 %a3, 32
  %y3 = lshr i64 %b3, 32
  %x3.here = icmp eq i64 %x3, %flag
  %y3.here = icmp eq i64 %y3, %flag
  %here3 = and i1 %x3.here, %y3.here
  %here01 = and i1 %here0, %here1
  %here23 = and i1 %here2, %here3
  %all = and i1 %here01, %here23
  br i1 %all, label %unpack, label %watch
unpack:
  %low0 = and i64 %a0, 4294967295
  %high0 = shl i64 %b0, 32
  %v0 = or i64 %low0, %high0
  %d0 = getelementptr i64, ptr addrspace(1) %dst, i64 %i0
  store i64 %v0, ptr addrspace(1) %d0, align 8
  %more1 = icmp ult i64 %i1, %pairs
  br i1 %more1, label %take1, label %taken
take1:
  %low1 = and i64 %a1, 4294967295
  %high1 = shl i64 %b1, 32
  %v1 = or i64 %low1, %high1
  %d1 = getelementptr i64, ptr addrspace(1) %dst, i64 %i1
  store i64 %v1, ptr addrspace(1) %d1, align 8
  %more2 = icmp ult i64 %i2, %pairs
  br i1 %more2, label %take2, label %taken
take2:
  %low2 = and i64 %a2, 4294967295
  %high2 = shl i64 %b2, 32
  %v2 = or i64 %low2, %high2
  %d2 = getelementptr i64, ptr addrspace(1) %dst, i64 %i2
  store i64 %v2, ptr addrspace(1) %d2, align 8
  %more3 = icmp ult i64 %i3, %pairs
  br i1 %more3, label %take3, label %taken
take3:
  %low3 = and i64 %a3, 4294967295
  %high3 = shl i64 %b3, 32
  %v3 = or i64 %low3, %high3
  %d3 = getelementptr i64, ptr addrspace(1) %dst, i64 %i3
  store i64 %v3, ptr addrspace(1) %d3, align 8
  br label %taken
taken:
  %i.after = add i64 %i0, %step4
  br label %quads
loop:
  %i = phi i64 [ %first, %entry ], [ %i.next, %take ]
  %more = icmp ult i64 %i, %pairs
  br i1 %more, label %begin, label %done
begin:
  %p = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %i
  br label %poll
poll:
  %both = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p)
  %a = extractvalue { i64, i64 } %both, 0
  %b = extractvalue { i64, i64 } %both, 1
  %a.flag = lshr i64 %a, 32
  %b.flag = lshr i64 %b, 32
  %a.here = icmp eq i64 %a.flag, %flag
  %b.here = icmp eq i64 %b.flag, %flag
  %here = and i1 %a.here, %b.here
  br i1 %here, label %take, label %poll
take:
  %low = and i64 %a, 4294967295
  %high = shl i64 %b, 32
  %v = or i64 %low, %high
  %offset = shl i64 %i, 3
  call void @ditron_message_store(ptr addrspace(1) %dst, i64 %offset, i64 %bytes, i64 %v)
  %i.next = add i64 %i, %step
  br label %loop
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; ---- ll128: unit u of 16 bytes is lane u % 8 of line u / 8 -------------------------------------------------------

define linkonce_odr hidden i64 @ditron_ll128_units(i64 %bytes) #1 {
  %some = call i64 @llvm.umax.i64(i64 %bytes, i64 1)
  %up = add i64 %some, 119
  %lines = udiv i64 %up, 120
  %units = shl i64 %lines, 3
  ret i64 %units
}

; Where a unit's bytes lie in the message.
define linkonce_odr hidden i64 @ditron_ll128_offset(i64 %unit) #1 {
  %line = lshr i64 %unit, 3
  %lane = and i64 %unit, 7
  %a = mul i64 %line, 120
  %b = shl i64 %lane, 4
  %r = add i64 %a, %b
  ret i64 %r
}

; All lanes of a warp iterate together, also those without a unit left, and store together, so that a line is one access.
define linkonce_odr hidden i32 @ditron_ll128_put(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, ptr addrspace(1) %src, i64 %bytes, i64 %epoch, i32 %rank) #0 {
entry:
  %there = call ptr addrspace(1) @ditron_packets_at(ptr addrspace(1) %ctx, ptr addrspace(1) %packets, i32 %rank)
  %units = call i64 @ditron_ll128_units(i64 %bytes)
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %warp_size = call i32 @ditron_warp_size()
  %lanes = sub i32 %warp_size, 1
  %lane = and i32 %tid, %lanes
  %warp_first = sub i32 %tid, %lane
  %lane64 = zext i32 %lane to i64
  %first = zext i32 %warp_first to i64
  %step = zext i32 %threads to i64
  call void @ditron_block_barrier()
  br label %loop
loop:
  %base = phi i64 [ %first, %entry ], [ %base.next, %next ]
  %more = icmp ult i64 %base, %units
  br i1 %more, label %load, label %done
load:
  %unit = add i64 %base, %lane64
  %active = icmp ult i64 %unit, %units
  %in_line = and i64 %unit, 7
  %last = icmp eq i64 %in_line, 7
  %offset = call i64 @ditron_ll128_offset(i64 %unit)
  %behind = add i64 %offset, 8
  %a = call i64 @ditron_message_load(ptr addrspace(1) %src, i64 %offset, i64 %bytes)
  %b.data = call i64 @ditron_message_load(ptr addrspace(1) %src, i64 %behind, i64 %bytes)
  %b = select i1 %last, i64 %epoch, i64 %b.data
  %p = getelementptr { i64, i64 }, ptr addrspace(1) %there, i64 %unit
  call void @ditron_warp_sync()
  br i1 %active, label %send, label %next
send:
  call void @ditron_st_pair(ptr addrspace(1) %p, i64 %a, i64 %b)
  br label %next
next:
  call void @ditron_warp_sync()
  %base.next = add i64 %base, %step
  br label %loop
done:
  call void @ditron_block_barrier()
  ret i32 0
}

; A warp polls its four lines until all have their flag; the data of the last poll came with it. A lane without a unit reads the first line
; and waits for nothing.
define linkonce_odr hidden i32 @ditron_ll128_get(ptr addrspace(1) %dst, ptr addrspace(1) %packets, i64 %bytes, i64 %epoch) #0 {
entry:
  call void @ditron_require_line(ptr addrspace(1) %packets)
  %units = call i64 @ditron_ll128_units(i64 %bytes)
  %tid = call i32 @ditron_thread_id()
  %threads = call i32 @ditron_num_threads()
  %warp_size = call i32 @ditron_warp_size()
  %lanes = sub i32 %warp_size, 1
  %lane = and i32 %tid, %lanes
  %warp_first = sub i32 %tid, %lane
  %lane64 = zext i32 %lane to i64
  %first = zext i32 %warp_first to i64
  %step = zext i32 %threads to i64
  call void @ditron_block_barrier()
  br label %loop
loop:
  %base = phi i64 [ %first, %entry ], [ %base.next, %next ]
  %more = icmp ult i64 %base, %units
  br i1 %more, label %begin, label %done
begin:
  %unit = add i64 %base, %lane64
  %active = icmp ult i64 %unit, %units
  %in_line = and i64 %unit, 7
  %last = icmp eq i64 %in_line, 7
  %watches = and i1 %active, %last
  %index = select i1 %active, i64 %unit, i64 %in_line
  %p = getelementptr { i64, i64 }, ptr addrspace(1) %packets, i64 %index
  br label %poll
poll:
  %both = call { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p)
  %a = extractvalue { i64, i64 } %both, 0
  %b = extractvalue { i64, i64 } %both, 1
  %old = icmp ne i64 %b, %epoch
  %missing = and i1 %watches, %old
  %missing32 = zext i1 %missing to i32
  %any = call i64 @ditron_ballot(i32 %missing32)
  %here = icmp eq i64 %any, 0
  br i1 %here, label %arrived, label %poll
arrived:
  br i1 %active, label %take, label %next
take:
  %offset = call i64 @ditron_ll128_offset(i64 %unit)
  call void @ditron_message_store(ptr addrspace(1) %dst, i64 %offset, i64 %bytes, i64 %a)
  br i1 %last, label %next, label %second
second:
  %behind = add i64 %offset, 8
  call void @ditron_message_store(ptr addrspace(1) %dst, i64 %behind, i64 %bytes, i64 %b)
  br label %next
next:
  call void @ditron_warp_sync()
  %base.next = add i64 %base, %step
  br label %loop
done:
  call void @ditron_block_barrier()
  ret i32 0
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
