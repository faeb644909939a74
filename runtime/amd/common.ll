; AMD: the primitives that runtime/gpu/*.ll and the lowering call; LLVM's AMDGPU memory model chooses the instructions.
;
; scope 0 is the agent, 1 and 2 the system; semantic 0 relaxed, 1 acquire, 2 release.

declare i32 @llvm.amdgcn.workitem.id.x()
declare ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
declare i32 @llvm.amdgcn.mbcnt.lo(i32, i32)
declare i32 @llvm.amdgcn.mbcnt.hi(i32, i32)
declare i32 @llvm.amdgcn.wavefrontsize()
declare void @llvm.amdgcn.s.barrier()
declare void @llvm.amdgcn.s.sleep(i32 immarg)
declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i64 @llvm.amdgcn.ballot.i64(i1)
declare void @llvm.amdgcn.wave.barrier()

; ---- threads -----------------------------------------------------------------------------------------------------

define linkonce_odr hidden i32 @ditron_thread_id() #1 {
  %r = call i32 @llvm.amdgcn.workitem.id.x()
  ret i32 %r
}

; workgroup_size_x of the dispatch packet (16 bits at byte 4).
define linkonce_odr hidden i32 @ditron_num_threads() #1 {
  %packet = call ptr addrspace(4) @llvm.amdgcn.dispatch.ptr()
  %p = getelementptr i8, ptr addrspace(4) %packet, i64 4
  %v = load i16, ptr addrspace(4) %p, align 4, !invariant.load !0
  %r = zext i16 %v to i32
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_lane_id() #1 {
  %lo = call i32 @llvm.amdgcn.mbcnt.lo(i32 -1, i32 0)
  %wave = call i32 @llvm.amdgcn.wavefrontsize()
  %wide = icmp eq i32 %wave, 64
  %hi = call i32 @llvm.amdgcn.mbcnt.hi(i32 -1, i32 %lo)
  %r = select i1 %wide, i32 %hi, i32 %lo
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_warp_size() #1 {
  %r = call i32 @llvm.amdgcn.wavefrontsize()
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_warp_id() #1 {
  %tid = call i32 @llvm.amdgcn.workitem.id.x()
  %wave = call i32 @llvm.amdgcn.wavefrontsize()
  %r = udiv i32 %tid, %wave
  ret i32 %r
}

; s_barrier alone orders nothing: the fences make it the barrier that CUDA's is.
define linkonce_odr hidden void @ditron_block_barrier() #0 {
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  ret void
}

define linkonce_odr hidden i32 @ditron_sync_threads() #0 {
  call void @ditron_block_barrier()
  ret i32 0
}

define linkonce_odr hidden void @ditron_warp_sync() #0 {
  call void @llvm.amdgcn.wave.barrier()
  ret void
}

; mode 0 idx, 1 up, 2 down, 3 bfly; a lane outside of the wave gives the caller's own value, as on NVIDIA.
define linkonce_odr hidden i32 @ditron_shfl_i32(i32 %v, i32 %lane, i32 %mode) #0 {
  %me = call i32 @ditron_lane_id()
  %wave = call i32 @llvm.amdgcn.wavefrontsize()
  %up = sub i32 %me, %lane
  %down = add i32 %me, %lane
  %bfly = xor i32 %me, %lane
  %last = sub i32 %wave, 1
  %idx = and i32 %lane, %last
  %is_up = icmp eq i32 %mode, 1
  %is_down = icmp eq i32 %mode, 2
  %is_bfly = icmp eq i32 %mode, 3
  %a = select i1 %is_up, i32 %up, i32 %idx
  %b = select i1 %is_down, i32 %down, i32 %a
  %c = select i1 %is_bfly, i32 %bfly, i32 %b
  %inside = icmp ult i32 %c, %wave
  %from = select i1 %inside, i32 %c, i32 %me
  %byte = shl i32 %from, 2
  %r = call i32 @llvm.amdgcn.ds.bpermute(i32 %byte, i32 %v)
  ret i32 %r
}

define linkonce_odr hidden i64 @ditron_ballot(i32 %pred) #0 {
  %p = icmp ne i32 %pred, 0
  %r = call i64 @llvm.amdgcn.ballot.i64(i1 %p)
  ret i64 %r
}

; ---- memory order ------------------------------------------------------------------------------------------------

define linkonce_odr hidden void @ditron_fence_scope(i32 %scope) #0 {
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  fence syncscope("agent") acq_rel
  ret void
on_system:
  fence acq_rel
  ret void
}

; The threads for which `leader` holds fence, then set a signal or add to it.
define linkonce_odr hidden void @ditron_release_signal(i1 %leader, ptr addrspace(1) %p, i64 %value, i32 %op, i32 %scope) #0 {
  br i1 %leader, label %lead, label %done
lead:
  call void @ditron_fence_scope(i32 %scope)
  %is_add = icmp eq i32 %op, 1
  br i1 %is_add, label %add, label %set
add:
  call void @ditron_add_b64(ptr addrspace(1) %p, i64 %value, i32 %scope)
  br label %done
set:
  %stored = call i32 @ditron_st_b64(ptr addrspace(1) %p, i64 %value, i32 %scope, i32 0)
  br label %done
done:
  ret void
}

; One poll of a wait is relaxed and the acquire comes once, after the last: an acquiring poll would invalidate the caches
; in every iteration. The sleep (64 cycles) frees the memory pipeline for other waves.
define linkonce_odr hidden i64 @ditron_poll(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  call void @llvm.amdgcn.s.sleep(i32 1)
  %r = call i64 @ditron_ld_b64(ptr addrspace(1) %p, i32 %scope, i32 0)
  ret i64 %r
}

define linkonce_odr hidden void @ditron_polled(i32 %scope, i32 %semantic) #0 {
  %relaxed = icmp eq i32 %semantic, 0
  br i1 %relaxed, label %done, label %acquire
acquire:
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  fence syncscope("agent") acquire
  br label %done
on_system:
  fence acquire
  br label %done
done:
  ret void
}

; ---- loads, stores and the add of a signal -----------------------------------------------------------------------

define linkonce_odr hidden i8 @ditron_ld_b8(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %acquire = icmp eq i32 %semantic, 1
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %acquire, label %gpu_acquire, label %gpu_relaxed
on_system:
  br i1 %acquire, label %system_acquire, label %system_relaxed
gpu_acquire:
  %a = load atomic i8, ptr addrspace(1) %p syncscope("agent") acquire, align 1
  ret i8 %a
gpu_relaxed:
  %b = load atomic i8, ptr addrspace(1) %p syncscope("agent") monotonic, align 1
  ret i8 %b
system_acquire:
  %c = load atomic i8, ptr addrspace(1) %p acquire, align 1
  ret i8 %c
system_relaxed:
  %d = load atomic i8, ptr addrspace(1) %p monotonic, align 1
  ret i8 %d
}

define linkonce_odr hidden i16 @ditron_ld_b16(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %acquire = icmp eq i32 %semantic, 1
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %acquire, label %gpu_acquire, label %gpu_relaxed
on_system:
  br i1 %acquire, label %system_acquire, label %system_relaxed
gpu_acquire:
  %a = load atomic i16, ptr addrspace(1) %p syncscope("agent") acquire, align 2
  ret i16 %a
gpu_relaxed:
  %b = load atomic i16, ptr addrspace(1) %p syncscope("agent") monotonic, align 2
  ret i16 %b
system_acquire:
  %c = load atomic i16, ptr addrspace(1) %p acquire, align 2
  ret i16 %c
system_relaxed:
  %d = load atomic i16, ptr addrspace(1) %p monotonic, align 2
  ret i16 %d
}

define linkonce_odr hidden i32 @ditron_ld_b32(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %acquire = icmp eq i32 %semantic, 1
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %acquire, label %gpu_acquire, label %gpu_relaxed
on_system:
  br i1 %acquire, label %system_acquire, label %system_relaxed
gpu_acquire:
  %a = load atomic i32, ptr addrspace(1) %p syncscope("agent") acquire, align 4
  ret i32 %a
gpu_relaxed:
  %b = load atomic i32, ptr addrspace(1) %p syncscope("agent") monotonic, align 4
  ret i32 %b
system_acquire:
  %c = load atomic i32, ptr addrspace(1) %p acquire, align 4
  ret i32 %c
system_relaxed:
  %d = load atomic i32, ptr addrspace(1) %p monotonic, align 4
  ret i32 %d
}

define linkonce_odr hidden i64 @ditron_ld_b64(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %acquire = icmp eq i32 %semantic, 1
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %acquire, label %gpu_acquire, label %gpu_relaxed
on_system:
  br i1 %acquire, label %system_acquire, label %system_relaxed
gpu_acquire:
  %a = load atomic i64, ptr addrspace(1) %p syncscope("agent") acquire, align 8
  ret i64 %a
gpu_relaxed:
  %b = load atomic i64, ptr addrspace(1) %p syncscope("agent") monotonic, align 8
  ret i64 %b
system_acquire:
  %c = load atomic i64, ptr addrspace(1) %p acquire, align 8
  ret i64 %c
system_relaxed:
  %d = load atomic i64, ptr addrspace(1) %p monotonic, align 8
  ret i64 %d
}

define linkonce_odr hidden i32 @ditron_st_b8(ptr addrspace(1) %p, i8 %v, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %release = icmp eq i32 %semantic, 2
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %release, label %gpu_release, label %gpu_relaxed
on_system:
  br i1 %release, label %system_release, label %system_relaxed
gpu_release:
  store atomic i8 %v, ptr addrspace(1) %p syncscope("agent") release, align 1
  ret i32 0
gpu_relaxed:
  store atomic i8 %v, ptr addrspace(1) %p syncscope("agent") monotonic, align 1
  ret i32 0
system_release:
  store atomic i8 %v, ptr addrspace(1) %p release, align 1
  ret i32 0
system_relaxed:
  store atomic i8 %v, ptr addrspace(1) %p monotonic, align 1
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_b16(ptr addrspace(1) %p, i16 %v, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %release = icmp eq i32 %semantic, 2
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %release, label %gpu_release, label %gpu_relaxed
on_system:
  br i1 %release, label %system_release, label %system_relaxed
gpu_release:
  store atomic i16 %v, ptr addrspace(1) %p syncscope("agent") release, align 2
  ret i32 0
gpu_relaxed:
  store atomic i16 %v, ptr addrspace(1) %p syncscope("agent") monotonic, align 2
  ret i32 0
system_release:
  store atomic i16 %v, ptr addrspace(1) %p release, align 2
  ret i32 0
system_relaxed:
  store atomic i16 %v, ptr addrspace(1) %p monotonic, align 2
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_b32(ptr addrspace(1) %p, i32 %v, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %release = icmp eq i32 %semantic, 2
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %release, label %gpu_release, label %gpu_relaxed
on_system:
  br i1 %release, label %system_release, label %system_relaxed
gpu_release:
  store atomic i32 %v, ptr addrspace(1) %p syncscope("agent") release, align 4
  ret i32 0
gpu_relaxed:
  store atomic i32 %v, ptr addrspace(1) %p syncscope("agent") monotonic, align 4
  ret i32 0
system_release:
  store atomic i32 %v, ptr addrspace(1) %p release, align 4
  ret i32 0
system_relaxed:
  store atomic i32 %v, ptr addrspace(1) %p monotonic, align 4
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_st_b64(ptr addrspace(1) %p, i64 %v, i32 %scope, i32 %semantic) #0 {
  %gpu = icmp eq i32 %scope, 0
  %release = icmp eq i32 %semantic, 2
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  br i1 %release, label %gpu_release, label %gpu_relaxed
on_system:
  br i1 %release, label %system_release, label %system_relaxed
gpu_release:
  store atomic i64 %v, ptr addrspace(1) %p syncscope("agent") release, align 8
  ret i32 0
gpu_relaxed:
  store atomic i64 %v, ptr addrspace(1) %p syncscope("agent") monotonic, align 8
  ret i32 0
system_release:
  store atomic i64 %v, ptr addrspace(1) %p release, align 8
  ret i32 0
system_relaxed:
  store atomic i64 %v, ptr addrspace(1) %p monotonic, align 8
  ret i32 0
}

define linkonce_odr hidden void @ditron_add_b64(ptr addrspace(1) %p, i64 %v, i32 %scope) #0 {
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  %a = atomicrmw add ptr addrspace(1) %p, i64 %v syncscope("agent") monotonic, align 8
  ret void
on_system:
  %b = atomicrmw add ptr addrspace(1) %p, i64 %v monotonic, align 8
  ret void
}

; 16 bytes by two relaxed accesses of the system: each 8-byte half is whole, the two are in no order.
define linkonce_odr hidden { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p) #0 {
  %q = getelementptr i64, ptr addrspace(1) %p, i64 1
  %a = load atomic i64, ptr addrspace(1) %p monotonic, align 8
  %b = load atomic i64, ptr addrspace(1) %q monotonic, align 8
  %r0 = insertvalue { i64, i64 } poison, i64 %a, 0
  %r = insertvalue { i64, i64 } %r0, i64 %b, 1
  ret { i64, i64 } %r
}

define linkonce_odr hidden void @ditron_st_pair(ptr addrspace(1) %p, i64 %a, i64 %b) #0 {
  %q = getelementptr i64, ptr addrspace(1) %p, i64 1
  store atomic i64 %a, ptr addrspace(1) %p monotonic, align 8
  store atomic i64 %b, ptr addrspace(1) %q monotonic, align 8
  ret void
}

; ---- compare and swap at the system's scope ----------------------------------------------------------------------

; Triton's own has agent scope only. It is called with the index of each element of a tensor: element 0 does the swap, the others
; return 0, so that their sum is the old value, and a reduction broadcasts it to every thread.
define linkonce_odr hidden i32 @ditron_cas_at_b32(ptr addrspace(1) %p, i32 %compare, i32 %value, i32 %index) #0 {
  %mine = icmp eq i32 %index, 0
  br i1 %mine, label %swap, label %other
swap:
  %pair = cmpxchg ptr addrspace(1) %p, i32 %compare, i32 %value acq_rel monotonic, align 4
  %old = extractvalue { i32, i1 } %pair, 0
  ret i32 %old
other:
  ret i32 0
}

define linkonce_odr hidden i64 @ditron_cas_at_b64(ptr addrspace(1) %p, i64 %compare, i64 %value, i32 %index) #0 {
  %mine = icmp eq i32 %index, 0
  br i1 %mine, label %swap, label %other
swap:
  %pair = cmpxchg ptr addrspace(1) %p, i64 %compare, i64 %value acq_rel monotonic, align 8
  %old = extractvalue { i64, i1 } %pair, 0
  ret i64 %old
other:
  ret i64 0
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged

!0 = !{}
