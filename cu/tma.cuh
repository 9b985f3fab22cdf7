// TMA: boxes of tensors copied into shared memory by one thread, and the mbarriers that tell of it.
// sm_90 and later.
#pragma once

namespace lowgemm {

// A CUtensorMap, which the host encodes: device.tensor_map(). A kernel takes it as
// const __grid_constant__ TensorMap, so that its address is one in the parameters themselves: a copy
// in local memory is none that TMA can read.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void init_barrier(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

// Mbarriers that were initialised before are there for TMA, and for other blocks of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What threads have written to shared memory before is there for TMA, which reads by another way
// (the asynchronous proxy). For writes over what threads have read a barrier is enough.
__device__ __forceinline__ void fence_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// One arrival, and so many bytes more until the phase ends.
__device__ __forceinline__ void arrive_and_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

// Whether the phase of that parity has ended. The hardware suspends the thread for a while, so that
// it asks once where the data comes soon.
__device__ __forceinline__ bool try_wait(unsigned barrier, unsigned parity) {
    unsigned done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done;
}

__device__ __forceinline__ void wait_for_phase(unsigned barrier, unsigned parity) {
    while (!try_wait(barrier, parity))
        ;
}

// Two boxes of 2-D tensors, A's at column ax and row ay, and B's, for one mbarrier that is to expect
// the bytes of both; by one thread of a warp that is converged, if the warp is to issue them. In one
// piece, because ptxas then guards each instruction by a predicate of which it knows that one lane
// has it: no branch, and no loop over the lanes that would issue a copy each.
__device__ __forceinline__ void load_boxes(bool issues, unsigned barrier, unsigned bytes,
                                           unsigned to_a, const TensorMap* a, int ax, int ay,
                                           unsigned to_b, const TensorMap* b, int bx, int by) {
    asm volatile(
        "{\n"
        ".reg .pred p, elected;\n"
        "setp.ne.u32 p, %0, 0;\n"
        "elect.sync _|elected, 0xffffffff;\n"
        "and.pred p, p, elected;\n"
        "@p mbarrier.arrive.expect_tx.shared::cta.b64 _, [%1], %2;\n"
        "@p cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%3], [%4, {%5, %6}], [%1];\n"
        "@p cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
        "[%7], [%8, {%9, %10}], [%1];\n"
        "}" ::"r"(static_cast<unsigned>(issues)),
        "r"(barrier), "r"(bytes), "r"(to_a), "l"(a), "r"(ax), "r"(ay), "r"(to_b), "l"(b), "r"(bx),
        "r"(by)
        : "memory");
}

}  // namespace lowgemm
