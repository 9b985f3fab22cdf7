// Tensor memory and its products (sm_100a, sm_103a).
__global__ void tensor_memory(unsigned long long a, unsigned long long b, unsigned* out, unsigned r) {
#if __CUDA_ARCH_FEAT_SM100_ALL || __CUDA_ARCH_FEAT_SM103_ALL
    __shared__ unsigned where;
    __shared__ unsigned long long barrier;
    unsigned s = (unsigned)__cvta_generic_to_shared(&where), m = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned v[4], t;
    unsigned short mask = r;
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(s));
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
    t = where;
#define PRODUCT(op, x, more)                                                                           \
    asm volatile("{.reg .pred p; setp.ne.u32 p, %4, 0; " op " [%0], " x ", %2, %3" more ", p;}"     \
                 ::"r"(t), "l"(a), "l"(b), "r"(r), "r"(r + t))
    PRODUCT("tcgen05.mma.cta_group::1.kind::f16", "%1", "");
    PRODUCT("tcgen05.mma.cta_group::1.kind::f16", "[%4]", "");
    PRODUCT("tcgen05.mma.cta_group::1.kind::tf32", "%1", "");
    PRODUCT("tcgen05.mma.cta_group::1.kind::f8f6f4", "%1", "");
    PRODUCT("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale", "%1", ", [%4], [%0]");
    PRODUCT("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::4X", "%1", ", [%4], [%0]");
    PRODUCT("tcgen05.mma.ws.cta_group::1.kind::f16", "%1", "");
    asm volatile("{.reg .pred p; setp.ne.u32 p, %3, 0; tcgen05.mma.sp.cta_group::1.kind::f16 [%0], %1, %2, [%3], %3, p;}"
                 ::"r"(t), "l"(a), "l"(b), "r"(r));
#if __CUDA_ARCH_FEAT_SM100_ALL
    PRODUCT("tcgen05.mma.cta_group::1.kind::i8", "%1", "");
#endif
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(m));
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(m), "h"(mask));
    asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(t), "l"(a));
    asm volatile("tcgen05.cp.cta_group::1.4x256b.b8x16.b6x16_p32 [%0], %1;" ::"r"(t), "l"(a));
    asm volatile("tcgen05.shift.cta_group::1.down [%0];" ::"r"(t));
    asm volatile("tcgen05.fence::before_thread_sync;");
    asm volatile("tcgen05.fence::after_thread_sync;");
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(t));
    asm volatile("tcgen05.wait::ld.sync.aligned;");
    asm volatile("tcgen05.st.sync.aligned.16x128b.x1.b32 [%0], {%1, %2};" ::"r"(t), "r"(v[0]), "r"(v[1]));
    asm volatile("tcgen05.ld.sync.aligned.16x64b.x1.pack::16b.b32 {%0}, [%1];" : "=r"(v[3]) : "r"(t + v[2]));
    asm volatile("tcgen05.wait::st.sync.aligned;");
#if __CUDA_ARCH_FEAT_SM103_ALL
    asm volatile("tcgen05.ld.red.sync.aligned.32x32b.x2.u32.min {%0, %1}, %2, [%3];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]) : "r"(t));
#endif
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(t));
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];" ::"r"(s), "r"(m));
    for (int n = 0; n < 4; ++n) out[n * 32 + threadIdx.x] = v[n];
#endif
}
