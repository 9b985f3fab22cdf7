// Blocks of a cluster: barriers, addresses, stores, atomics in each other's shared memory.
#if __CUDA_ARCH__ >= 900
__cluster_dims__(2)
#endif
__global__ void cluster(unsigned* out, unsigned v) {
#if __CUDA_ARCH__ >= 900
    __shared__ unsigned shared[64];
    __shared__ unsigned long long barrier;
    unsigned s = (unsigned)__cvta_generic_to_shared(&shared[threadIdx.x & 31]), other, r, rank;
    unsigned b = (unsigned)__cvta_generic_to_shared(&barrier), ob;
    unsigned long long generic = (unsigned long long)&shared[v & 31];
    asm volatile("barrier.cluster.arrive.release.aligned;");
    asm volatile("barrier.cluster.wait.acquire.aligned;");
    asm volatile("barrier.cluster.arrive.relaxed;");
    asm volatile("barrier.cluster.wait;");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(s), "r"(v));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(ob) : "r"(b), "r"(v));
    asm volatile("mapa.u64 %0, %0, %1;" : "+l"(generic) : "r"(v));
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(other));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(other), "r"(v));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(other), "r"(v), "r"(ob));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %1, %1, %1}, [%2];" ::"r"(other), "r"(v), "r"(ob));
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(other), "r"(v), "r"(ob));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(r) : "r"(other));
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], %2;" : "=r"(r) : "r"(other), "r"(r));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(ob));
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [%0], 64;" ::"r"(ob));
    asm volatile("{.reg .pred p; isspacep.shared::cluster p, %1; selp.u32 %0, 1, 0, p;}" : "=r"(s) : "l"(generic));
    asm volatile("fence.acq_rel.cluster;");
    asm volatile("{.reg .u32 x; mov.u32 x, %%cluster_ctarank; add.u32 %0, %0, x;}" : "+r"(r));
    out[threadIdx.x] = r + rank + s;
#endif
}
