; NVIDIA: the primitives that runtime/gpu/*.ll and the lowering call; each is one instruction or two.
;
; scope 0 is .gpu (syncscope "device"), 1 and 2 are .sys; semantic 0 relaxed, 1 acquire, 2 release.

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.laneid()
declare void @llvm.nvvm.barrier0()
declare i32 @llvm.nvvm.shfl.sync.idx.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.up.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.down.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)
declare void @llvm.nvvm.bar.warp.sync(i32)

; ---- threads -----------------------------------------------------------------------------------------------------

define linkonce_odr hidden i32 @ditron_thread_id() #1 {
  %r = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_num_threads() #1 {
  %r = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_lane_id() #1 {
  %r = call i32 @llvm.nvvm.read.ptx.sreg.laneid()
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_warp_size() #1 {
  ret i32 32
}

define linkonce_odr hidden i32 @ditron_warp_id() #1 {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %r = lshr i32 %tid, 5
  ret i32 %r
}

define linkonce_odr hidden void @ditron_block_barrier() #0 {
  call void @llvm.nvvm.barrier0()
  ret void
}

define linkonce_odr hidden i32 @ditron_sync_threads() #0 {
  call void @llvm.nvvm.barrier0()
  ret i32 0
}

define linkonce_odr hidden void @ditron_warp_sync() #0 {
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  ret void
}

; mode 0 idx, 1 up, 2 down, 3 bfly. The last operand of shfl.sync is the clamp: 0 for up, 31 for the others.
define linkonce_odr hidden i32 @ditron_shfl_i32(i32 %v, i32 %lane, i32 %mode) #0 {
  switch i32 %mode, label %idx [ i32 1, label %up
                                 i32 2, label %down
                                 i32 3, label %bfly ]
idx:
  %a = call i32 @llvm.nvvm.shfl.sync.idx.i32(i32 -1, i32 %v, i32 %lane, i32 31)
  ret i32 %a
up:
  %b = call i32 @llvm.nvvm.shfl.sync.up.i32(i32 -1, i32 %v, i32 %lane, i32 0)
  ret i32 %b
down:
  %c = call i32 @llvm.nvvm.shfl.sync.down.i32(i32 -1, i32 %v, i32 %lane, i32 31)
  ret i32 %c
bfly:
  %d = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %v, i32 %lane, i32 31)
  ret i32 %d
}

define linkonce_odr hidden i64 @ditron_ballot(i32 %pred) #0 {
  %p = icmp ne i32 %pred, 0
  %b = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %p)
  %r = zext i32 %b to i64
  ret i64 %r
}

; ---- memory order ------------------------------------------------------------------------------------------------

define linkonce_odr hidden void @ditron_fence_scope(i32 %scope) #0 {
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  fence syncscope("device") acq_rel
  ret void
on_system:
  fence acq_rel
  ret void
}

; One poll of a wait: the load itself acquires, so nothing is left to do after the last.
define linkonce_odr hidden i64 @ditron_poll(ptr addrspace(1) %p, i32 %scope, i32 %semantic) #0 {
  %r = call i64 @ditron_ld_b64(ptr addrspace(1) %p, i32 %scope, i32 %semantic)
  ret i64 %r
}

define linkonce_odr hidden void @ditron_polled(i32 %scope, i32 %semantic) #0 {
  ret void
}

; TMA reads and writes through the async proxy. After a wait, what the wait acquired through the generic proxy must be
; ordered before the TMA loads that follow; the token passes through, so that they follow.
define linkonce_odr hidden i32 @ditron_tma_acquire(i32 %token) #0 {
  call void asm sideeffect "fence.proxy.async;", "~{memory}"()
  ret i32 %token
}

; Before a publication: the TMA stores of this thread are complete (not only their source read), and ordered before
; what the generic proxy does next.
define linkonce_odr hidden i32 @ditron_tma_release() #0 {
  call void asm sideeffect "cp.async.bulk.wait_group 0;", "~{memory}"()
  call void asm sideeffect "fence.proxy.async;", "~{memory}"()
  ret i32 0
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
  %a = load atomic i8, ptr addrspace(1) %p syncscope("device") acquire, align 1
  ret i8 %a
gpu_relaxed:
  %b = load atomic i8, ptr addrspace(1) %p syncscope("device") monotonic, align 1
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
  %a = load atomic i16, ptr addrspace(1) %p syncscope("device") acquire, align 2
  ret i16 %a
gpu_relaxed:
  %b = load atomic i16, ptr addrspace(1) %p syncscope("device") monotonic, align 2
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
  %a = load atomic i32, ptr addrspace(1) %p syncscope("device") acquire, align 4
  ret i32 %a
gpu_relaxed:
  %b = load atomic i32, ptr addrspace(1) %p syncscope("device") monotonic, align 4
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
  %a = load atomic i64, ptr addrspace(1) %p syncscope("device") acquire, align 8
  ret i64 %a
gpu_relaxed:
  %b = load atomic i64, ptr addrspace(1) %p syncscope("device") monotonic, align 8
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
  store atomic i8 %v, ptr addrspace(1) %p syncscope("device") release, align 1
  ret i32 0
gpu_relaxed:
  store atomic i8 %v, ptr addrspace(1) %p syncscope("device") monotonic, align 1
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
  store atomic i16 %v, ptr addrspace(1) %p syncscope("device") release, align 2
  ret i32 0
gpu_relaxed:
  store atomic i16 %v, ptr addrspace(1) %p syncscope("device") monotonic, align 2
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
  store atomic i32 %v, ptr addrspace(1) %p syncscope("device") release, align 4
  ret i32 0
gpu_relaxed:
  store atomic i32 %v, ptr addrspace(1) %p syncscope("device") monotonic, align 4
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
  store atomic i64 %v, ptr addrspace(1) %p syncscope("device") release, align 8
  ret i32 0
gpu_relaxed:
  store atomic i64 %v, ptr addrspace(1) %p syncscope("device") monotonic, align 8
  ret i32 0
system_release:
  store atomic i64 %v, ptr addrspace(1) %p release, align 8
  ret i32 0
system_relaxed:
  store atomic i64 %v, ptr addrspace(1) %p monotonic, align 8
  ret i32 0
}

; 16 bytes by one relaxed access of the system; `p` is a multiple of 16. In assembly, because LLVM has no vector atomics.
define linkonce_odr hidden { i64, i64 } @ditron_ld_pair(ptr addrspace(1) %p) #0 {
  %r = call { i64, i64 } asm sideeffect "ld.relaxed.sys.global.v2.b64 {$0, $1}, [$2];", "=l,=l,l,~{memory}"(ptr addrspace(1) %p)
  ret { i64, i64 } %r
}

define linkonce_odr hidden void @ditron_st_pair(ptr addrspace(1) %p, i64 %a, i64 %b) #0 {
  call void asm sideeffect "st.relaxed.sys.global.v2.b64 [$0], {$1, $2};", "l,l,l,~{memory}"(ptr addrspace(1) %p, i64 %a, i64 %b)
  ret void
}

; In assembly, because LLVM's atomicrmw loses the scope on the way to PTX, where none means .gpu.
define linkonce_odr hidden void @ditron_add_b64(ptr addrspace(1) %p, i64 %v, i32 %scope) #0 {
  %gpu = icmp eq i32 %scope, 0
  br i1 %gpu, label %on_gpu, label %on_system
on_gpu:
  call void asm sideeffect "red.relaxed.gpu.global.add.u64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret void
on_system:
  call void asm sideeffect "red.relaxed.sys.global.add.u64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret void
}

; The threads for which `leader` holds fence, then set a signal or add to it. Predicated instead of a branch: where products
; (wgmma) are in flight, ptxas would wait for them in the branch, and then serializes all of the kernel's.
define linkonce_odr hidden void @ditron_release_signal(i1 %leader, ptr addrspace(1) %p, i64 %v, i32 %op, i32 %scope) #0 {
  %acts = zext i1 %leader to i32
  %gpu = icmp eq i32 %scope, 0
  %is_add = icmp eq i32 %op, 1
  br i1 %is_add, label %add, label %set
add:
  br i1 %gpu, label %add_gpu, label %add_system
set:
  br i1 %gpu, label %set_gpu, label %set_system
add_gpu:
  call void asm sideeffect "{ .reg .pred p; setp.ne.u32 p, $0, 0; @p fence.acq_rel.gpu; @p red.relaxed.gpu.global.add.u64 [$1], $2; }", "r,l,l,~{memory}"(i32 %acts, ptr addrspace(1) %p, i64 %v)
  ret void
add_system:
  call void asm sideeffect "{ .reg .pred p; setp.ne.u32 p, $0, 0; @p fence.acq_rel.sys; @p red.relaxed.sys.global.add.u64 [$1], $2; }", "r,l,l,~{memory}"(i32 %acts, ptr addrspace(1) %p, i64 %v)
  ret void
set_gpu:
  call void asm sideeffect "{ .reg .pred p; setp.ne.u32 p, $0, 0; @p fence.acq_rel.gpu; @p st.relaxed.gpu.global.b64 [$1], $2; }", "r,l,l,~{memory}"(i32 %acts, ptr addrspace(1) %p, i64 %v)
  ret void
set_system:
  call void asm sideeffect "{ .reg .pred p; setp.ne.u32 p, $0, 0; @p fence.acq_rel.sys; @p st.relaxed.sys.global.b64 [$1], $2; }", "r,l,l,~{memory}"(i32 %acts, ptr addrspace(1) %p, i64 %v)
  ret void
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
