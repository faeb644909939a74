; AMD: what the sanitizer (runtime/gpu/sanitizer.ll) needs beside the primitives of common.ll.

declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.workgroup.id.y()
declare i32 @llvm.amdgcn.workgroup.id.z()
declare i64 @llvm.readsteadycounter()
declare void @llvm.amdgcn.endpgm()
declare void @ditron_block_barrier()
declare i64 @ditron_ld_b64(ptr addrspace(1), i32, i32)

define linkonce_odr hidden i32 @ditron_program_id(i32 %axis) #1 {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %z = call i32 @llvm.amdgcn.workgroup.id.z()
  %is_y = icmp eq i32 %axis, 1
  %is_z = icmp eq i32 %axis, 2
  %a = select i1 %is_y, i32 %y, i32 %x
  %r = select i1 %is_z, i32 %z, i32 %a
  ret i32 %r
}

; The constant clock of CDNA runs at 100 MHz.
define linkonce_odr hidden i64 @ditron_clock_ns() #0 {
  %ticks = call i64 @llvm.readsteadycounter()
  %r = mul i64 %ticks, 10
  ret i64 %r
}

; The program's barrier; true if the argument is in any thread, which has set `poison` before. AMD has no reducing barrier: two waves
; may read different values of the word while another program sets it. Then one of them exits later, at its next wait or at the
; kernel's end; barriers do not wait for waves that have exited.
define linkonce_odr hidden i1 @ditron_barrier_any(i1 %mine, ptr addrspace(1) %poison) #0 {
  call void @ditron_block_barrier()
  %word = call i64 @ditron_ld_b64(ptr addrspace(1) %poison, i32 2, i32 0)
  %any = icmp ne i64 %word, 0
  ret i1 %any
}

; The calling wave exits the kernel; barriers do not wait for it.
define linkonce_odr hidden void @ditron_exit() #0 {
  call void @llvm.amdgcn.endpgm()
  unreachable
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
