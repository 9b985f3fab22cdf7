// Products of a warp group, of matrices in shared memory (sm_90a alone).
__global__ void __launch_bounds__(128, 3) warpgroup(unsigned long long a, unsigned long long b, float* out, unsigned r) {
#if __CUDA_ARCH_FEAT_SM90_ALL
    float d[4] = {};
    unsigned i[4] = {};
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    asm volatile("wgmma.fence.sync.aligned;");
#define FLOATS "{%0, %1, %2, %3}"
#define WGMMA(op, x, more)                                                                          \
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; " op " " FLOATS ", " x ", %6, " more "}"     \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(r), "l"(a), "l"(b))
    WGMMA("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "%5", "p, 1, 1, 0, 1;");
    WGMMA("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", "{%4, %4, %4, %4}", "p, -1, 1, 0;");
    WGMMA("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32", "%5", "p, 1, 1;");
    WGMMA("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e5m2", "%5", "p, 1, 1;");
    WGMMA("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", "%5", "%4, 0, p, 1, 1, 0, 0;");
    WGMMA("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e4m3", "{%4, %4, %4, %4}", "%4, 0, p, 1, 1;");
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 " FLOATS ", %5, %6, p;}"
                 : "+r"(i[0]), "+r"(i[1]), "+r"(i[2]), "+r"(i[3]) : "r"(r), "l"(a), "l"(b));
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc " FLOATS ", %5, %6, p;}"
                 : "+r"(i[0]), "+r"(i[1]), "+r"(i[2]), "+r"(i[3]) : "r"(r), "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    for (int n = 0; n < 4; ++n) out[n * 128 + threadIdx.x] = d[n] + i[n];
#endif
}
