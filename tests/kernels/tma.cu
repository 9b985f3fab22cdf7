// Bulk copies and tensor copies between global and shared memory (sm_90 and later).
struct alignas(64) tensor_map { unsigned long long words[16]; };
__global__ void bulk(char* global, const __grid_constant__ tensor_map map, int n) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ char shared[];
    __shared__ unsigned long long barrier;
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    unsigned b = (unsigned)__cvta_generic_to_shared(&barrier);
    unsigned long long policy, m = (unsigned long long)&map;
    unsigned short mask = n;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("prefetch.tensormap [%0];" ::"l"(m));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(s), "l"(global), "r"(n), "r"(b));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(s), "l"(global), "r"(n), "r"(b), "l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(s), "l"(global), "r"(n), "r"(b), "h"(mask));
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(s), "r"(s + 64), "r"(n), "r"(b));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(s), "r"(n));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global), "r"(s), "r"(n), "l"(policy));
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(n));
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global), "r"(s), "r"(n));
    asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%0], [%1], %2, [%3];" ::"r"(s), "r"(s + 64), "r"(n), "r"(b));
    asm volatile("cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2}], [%3];" ::"r"(s), "l"(m), "r"(n), "r"(b));
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %2}], [%3], %4;" ::"r"(s), "l"(m), "r"(n), "r"(b), "h"(mask));
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %2, %2}], [%3], %4;" ::"r"(s), "l"(m), "r"(n), "r"(b), "l"(policy));
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %2, %2, %2}], [%3], {%4, %4};" ::"r"(s), "l"(m), "r"(n), "r"(b), "h"(mask));
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%1, %1, %1, %1, %1}], [%2];" ::"l"(m), "r"(n), "r"(s));
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%1, %1}], [%2], %3;" ::"l"(m), "r"(n), "r"(s), "l"(policy));
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %1}], [%2];" ::"l"(m), "r"(n), "r"(s));
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %1}];" ::"l"(m), "r"(n));
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group.read 0;");
    asm volatile("cp.async.bulk.wait_group 1;");
    asm volatile("fence.proxy.tensormap::generic.release.gpu;");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(m));
#endif
}
