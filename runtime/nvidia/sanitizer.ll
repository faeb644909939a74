; NVIDIA: what the sanitizer (runtime/gpu/sanitizer.ll) needs beside the primitives of common.ll.

declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()

define linkonce_odr hidden i32 @ditron_program_id(i32 %axis) #1 {
  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %z = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
  %is_y = icmp eq i32 %axis, 1
  %is_z = icmp eq i32 %axis, 2
  %a = select i1 %is_y, i32 %y, i32 %x
  %r = select i1 %is_z, i32 %z, i32 %a
  ret i32 %r
}

define linkonce_odr hidden i64 @ditron_clock_ns() #0 {
  %r = call i64 asm sideeffect "mov.u64 $0, %globaltimer;", "=l,~{memory}"()
  ret i64 %r
}

; The program's barrier; true in every thread if the argument is in any.
define linkonce_odr hidden i1 @ditron_barrier_any(i1 %mine, ptr addrspace(1) %poison) #0 {
  %mine32 = zext i1 %mine to i32
  %any32 = call i32 asm sideeffect "{ .reg .pred q<2>; setp.ne.u32 q0, $1, 0; bar.red.or.pred q1, 0, q0; selp.u32 $0, 1, 0, q1; }", "=r,r,~{memory}"(i32 %mine32) #2
  %any = icmp ne i32 %any32, 0
  ret i1 %any
}

; The calling thread exits the kernel; barriers do not wait for it.
define linkonce_odr hidden void @ditron_exit() #0 {
  call void asm sideeffect "exit;", "~{memory}"() #2
  ret void
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }  ; no barrier inside: may be moved and merged
attributes #2 = { convergent nounwind }
