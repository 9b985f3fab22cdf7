// Video instructions, carry-less and packed integers, permutes, sums of differences.
__global__ void video(const int* in, int* out) {
    int a = in[threadIdx.x], b = in[threadIdx.x + 32], c = in[threadIdx.x + 64], r = 0, v;
#define TWO(op) asm(op " %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b)); r ^= v; out[r & 31] = r
#define THREE(op) asm(op " %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v; out[r & 31] = r
    THREE("vadd.s32.s32.s32.sat");
    THREE("vsub.u32.u32.u32.max");
    THREE("vabsdiff.s32.u32.s32.add");
    THREE("vmin.s32.s32.s32.min");
    THREE("vmad.s32.s32.u32");
    THREE("vset.s32.s32.lt.add");
    THREE("vshl.u32.u32.u32.clamp");
    THREE("vadd2.s32.s32.s32.sat");
    THREE("vavrg2.s32.s32.s32");
    THREE("vabsdiff4.u32.u32.u32.add");
    THREE("vset4.u32.u32.eq.add");
    THREE("sad.s32");
    THREE("prmt.b32.f4e");
    THREE("prmt.b32");
    THREE("dp2a.lo.s32.u32");
    THREE("dp4a.u32.s32");
    THREE("mad24.lo.s32");
    THREE("bfe.s32");
    THREE("shf.l.wrap.b32");
    TWO("mul24.hi.s32");
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(v) : "r"(a)); r ^= v;
    asm("fns.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v;
    asm("bfi.b32 %0, %1, %2, %3, 5;" : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v;
    asm("szext.wrap.s32 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b)); r ^= v;
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b)); r ^= v;
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v;
    asm("{.reg .pred p; lop3.or.b32 %0|p, %1, %2, %3, 0x96, 0; selp.b32 %0, %0, 1, p;}"
        : "=r"(v) : "r"(a), "r"(b), "r"(c)); r ^= v;
    out[threadIdx.x] = r;
}
