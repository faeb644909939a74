; NVIDIA, sm_90 and later: NVLink multicast. Addresses come from ditron_multicast_ptr; an ordinary access through one is an error.
;
; One element per call, as tt.extern_elementwise calls it. PTX knows 16-bit floats only in pairs, so an element is reached through
; the aligned pair that holds it: a load picks its half; an add gives the other half -0.0, which changes nothing (there is no
; min or max of them); a store clears its half and then sets it, by and and or.
; op 0 add, 1 min, 2 max (signed).

define linkonce_odr hidden float @ditron_multimem_ld_reduce_f32(ptr addrspace(1) %p, i32 %op) #0 {
  %add.v = call float asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.f32 $0, [$1];", "=f,l,~{memory}"(ptr addrspace(1) %p)
  ret float %add.v
}

define linkonce_odr hidden i32 @ditron_multimem_red_f32(ptr addrspace(1) %p, float %v, i32 %op) #0 {
  call void asm sideeffect "multimem.red.relaxed.sys.global.add.f32 [$0], $1;", "l,f,~{memory}"(ptr addrspace(1) %p, float %v)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_multimem_st_f32(ptr addrspace(1) %p, float %v) #0 {
  call void asm sideeffect "multimem.st.relaxed.sys.global.f32 [$0], $1;", "l,f,~{memory}"(ptr addrspace(1) %p, float %v)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_multimem_ld_reduce_i32(ptr addrspace(1) %p, i32 %op) #0 {
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  %add.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.u32 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %p)
  ret i32 %add.v
min:
  %min.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.min.s32 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %p)
  ret i32 %min.v
max:
  %max.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.max.s32 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %p)
  ret i32 %max.v
}

define linkonce_odr hidden i32 @ditron_multimem_red_i32(ptr addrspace(1) %p, i32 %v, i32 %op) #0 {
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  call void asm sideeffect "multimem.red.relaxed.sys.global.add.u32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %p, i32 %v)
  ret i32 0
min:
  call void asm sideeffect "multimem.red.relaxed.sys.global.min.s32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %p, i32 %v)
  ret i32 0
max:
  call void asm sideeffect "multimem.red.relaxed.sys.global.max.s32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %p, i32 %v)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_multimem_st_i32(ptr addrspace(1) %p, i32 %v) #0 {
  call void asm sideeffect "multimem.st.relaxed.sys.global.u32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %p, i32 %v)
  ret i32 0
}

define linkonce_odr hidden i64 @ditron_multimem_ld_reduce_i64(ptr addrspace(1) %p, i32 %op) #0 {
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  %add.v = call i64 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.u64 $0, [$1];", "=l,l,~{memory}"(ptr addrspace(1) %p)
  ret i64 %add.v
min:
  %min.v = call i64 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.min.s64 $0, [$1];", "=l,l,~{memory}"(ptr addrspace(1) %p)
  ret i64 %min.v
max:
  %max.v = call i64 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.max.s64 $0, [$1];", "=l,l,~{memory}"(ptr addrspace(1) %p)
  ret i64 %max.v
}

define linkonce_odr hidden i32 @ditron_multimem_red_i64(ptr addrspace(1) %p, i64 %v, i32 %op) #0 {
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  call void asm sideeffect "multimem.red.relaxed.sys.global.add.u64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret i32 0
min:
  call void asm sideeffect "multimem.red.relaxed.sys.global.min.s64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret i32 0
max:
  call void asm sideeffect "multimem.red.relaxed.sys.global.max.s64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret i32 0
}

define linkonce_odr hidden i32 @ditron_multimem_st_i64(ptr addrspace(1) %p, i64 %v) #0 {
  call void asm sideeffect "multimem.st.relaxed.sys.global.u64 [$0], $1;", "l,l,~{memory}"(ptr addrspace(1) %p, i64 %v)
  ret i32 0
}

; ---- 16-bit floats: the pair and the shift of the element in it --------------------------------------------------

define linkonce_odr hidden ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p) #1 {
  %a = ptrtoint ptr addrspace(1) %p to i64
  %aligned = and i64 %a, -4
  %r = inttoptr i64 %aligned to ptr addrspace(1)
  ret ptr addrspace(1) %r
}

define linkonce_odr hidden i32 @ditron_pair_shift(ptr addrspace(1) %p) #1 {
  %a = ptrtoint ptr addrspace(1) %p to i64
  %low = trunc i64 %a to i32
  %second = and i32 %low, 2
  %r = shl i32 %second, 3
  ret i32 %r
}

; `bits` in the half at `shift`, `neutral` in the other.
define linkonce_odr hidden i32 @ditron_pair_of(i16 %bits, i32 %shift, i32 %neutral) #1 {
  %v = zext i16 %bits to i32
  %here = shl i32 %v, %shift
  %other = xor i32 %shift, 16
  %there = shl i32 %neutral, %other
  %r = or i32 %here, %there
  ret i32 %r
}

define linkonce_odr hidden i32 @ditron_multimem_st_b16(ptr addrspace(1) %p, i16 %v) #0 {
  %pair = call ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p)
  %shift = call i32 @ditron_pair_shift(ptr addrspace(1) %p)
  %keep = call i32 @ditron_pair_of(i16 0, i32 %shift, i32 65535)
  %set = call i32 @ditron_pair_of(i16 %v, i32 %shift, i32 0)
  call void asm sideeffect "multimem.red.relaxed.sys.global.and.b32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %pair, i32 %keep)
  call void asm sideeffect "multimem.red.relaxed.sys.global.or.b32 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %pair, i32 %set)
  ret i32 0
}

define linkonce_odr hidden i16 @ditron_multimem_ld_reduce_f16(ptr addrspace(1) %p, i32 %op) #0 {
  %pair = call ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p)
  %shift = call i32 @ditron_pair_shift(ptr addrspace(1) %p)
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  %add.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.f16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
min:
  %min.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.min.f16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
max:
  %max.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.max.f16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
done:
  %both = phi i32 [ %add.v, %add ], [ %min.v, %min ], [ %max.v, %max ]
  %half = lshr i32 %both, %shift
  %r = trunc i32 %half to i16
  ret i16 %r
}

define linkonce_odr hidden i32 @ditron_multimem_red_f16(ptr addrspace(1) %p, i16 %v, i32 %op) #0 {
  %pair = call ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p)
  %shift = call i32 @ditron_pair_shift(ptr addrspace(1) %p)
  %both = call i32 @ditron_pair_of(i16 %v, i32 %shift, i32 32768)
  call void asm sideeffect "multimem.red.relaxed.sys.global.add.f16x2 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %pair, i32 %both)
  ret i32 0
}

define linkonce_odr hidden i16 @ditron_multimem_ld_reduce_bf16(ptr addrspace(1) %p, i32 %op) #0 {
  %pair = call ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p)
  %shift = call i32 @ditron_pair_shift(ptr addrspace(1) %p)
  switch i32 %op, label %add [ i32 1, label %min
                               i32 2, label %max ]
add:
  %add.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.bf16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
min:
  %min.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.min.bf16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
max:
  %max.v = call i32 asm sideeffect "multimem.ld_reduce.relaxed.sys.global.max.bf16x2 $0, [$1];", "=r,l,~{memory}"(ptr addrspace(1) %pair)
  br label %done
done:
  %both = phi i32 [ %add.v, %add ], [ %min.v, %min ], [ %max.v, %max ]
  %half = lshr i32 %both, %shift
  %r = trunc i32 %half to i16
  ret i16 %r
}

define linkonce_odr hidden i32 @ditron_multimem_red_bf16(ptr addrspace(1) %p, i16 %v, i32 %op) #0 {
  %pair = call ptr addrspace(1) @ditron_pair(ptr addrspace(1) %p)
  %shift = call i32 @ditron_pair_shift(ptr addrspace(1) %p)
  %both = call i32 @ditron_pair_of(i16 %v, i32 %shift, i32 32768)
  call void asm sideeffect "multimem.red.relaxed.sys.global.add.bf16x2 [$0], $1;", "l,r,~{memory}"(ptr addrspace(1) %pair, i32 %both)
  ret i32 0
}

attributes #0 = { alwaysinline convergent nounwind }
attributes #1 = { alwaysinline nounwind }
