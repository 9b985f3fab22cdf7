// Barriers in shared memory, warp and block synchronisation, fences.
__global__ void barriers(unsigned* out, int n) {
    __shared__ unsigned long long barrier;
    unsigned at = (unsigned)__cvta_generic_to_shared(&barrier), done = 0, r = 0;
    unsigned long long state;
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(n));
    __syncthreads();
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at));
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(at));
    asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(at), "l"(state));
    asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(state) : "r"(at));
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(state) : "r"(at));
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(state) : "r"(at), "r"(n));
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], 64;" ::"r"(at));
    asm volatile("mbarrier.complete_tx.shared.b64 [%0], 64;" ::"r"(at));
    asm volatile(
        "{.reg .pred p; WAIT: mbarrier.try_wait.parity.shared.b64 p, [%0], %1, %2; @!p bra WAIT;}" ::"r"(at), "r"(done), "r"(n));
    asm volatile("{.reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(r) : "r"(at), "l"(state));
    asm volatile("fence.proxy.async;");
    asm volatile("fence.proxy.async.global;");
    asm volatile("fence.proxy.async.shared::cta;");
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile("griddepcontrol.wait;");
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("{.reg .pred p; elect.sync %0|p, -1; selp.u32 %0, %0, 0, p;}" : "=r"(r));
#endif
    asm volatile("{.reg .b32 c; mbarrier.pending_count.b64 c, %1; add.u32 %0, c, %0;}" : "+r"(r) : "l"(state));
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at));
    asm volatile("fence.acq_rel.gpu;");
    asm volatile("fence.sc.sys;");
    asm volatile("fence.proxy.alias;");
    asm volatile("membar.cta;");
    asm volatile("bar.sync %0, 64;" ::"r"(n));
    asm volatile("bar.arrive 2, %0;" ::"r"(n));
    asm volatile("barrier.sync %0, %1;" ::"r"(n), "r"(n + 32));
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; bar.red.popc.u32 %0, 1, p;}" : "=r"(done) : "r"(r));
    r += done;
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, 0; bar.red.and.pred p, 3, %2, p; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(r), "r"(n));
    asm volatile("nanosleep.u32 %0;" ::"r"(n));
    asm volatile("nanosleep.u32 100;");
    out[threadIdx.x] = done + r;
}
__global__ void warp(unsigned* out, unsigned v, unsigned long long w) {
    unsigned mask = __activemask(), r = __reduce_add_sync(mask, v), s;
    r += __reduce_xor_sync(mask, v) + __reduce_max_sync(mask, (int)v) + __match_any_sync(mask, w);
    int all;
    r += __match_all_sync(mask, v, &all) + all + __all_sync(mask, v) + __uni_sync(mask, v);
    asm volatile("{.reg .pred p; shfl.sync.down.b32 %0|p, %1, %2, 0x1f, %3; @!p mov.u32 %0, 5;}"
                 : "=r"(s) : "r"(v), "r"(r), "r"(mask));
    __syncwarp(mask + s);
    out[threadIdx.x] = r + s + __shfl_sync(mask, v, r, 16);
}
