// lab  global vectors: LDG.32, LDG.64 and LDG.128 of one stream.
//
// Idea      A thread waits for its load before it makes the next one, so a wider load has more bytes
//           under way. Bandwidth is bytes under way over latency, until L2 or DRAM gives no more:
//           float4 pays where few warps must keep the memory busy, as in a GEMM, and so do several
//           narrow loads at a time.
// Expected  With 8 warps an SM the rate follows the bytes under way; with all warps that fit it is
//           that of DRAM or L2, but for LDG.32, whose bytes under way do not reach it.
// Check     The sum of all words read, modulo 2^32.
//
// expect: registers <= 32; spill_store_bytes == 0; spill_load_bytes == 0
// expect lab_global_vectors<unsigned int, 1>: hot_loop.LDG.32 == 1
// expect lab_global_vectors<unsigned int, 4>: hot_loop.LDG.32 == 4
// expect lab_global_vectors<uint2, 1>: hot_loop.LDG.64 == 1
// expect lab_global_vectors<uint4, 1>: hot_loop.LDG.128 == 1
// expect lab_global_vectors<uint4, 4>: hot_loop.LDG.128 == 4
#include "lab_vectors.cuh"

constexpr int THREADS = 256;

// in: vectors of type V, a multiple of FLIGHT x all threads. steps: FLIGHT loads each; after the last
// vector the stream begins again. out: a sum a thread.
template <class V, int FLIGHT>
__global__ void __launch_bounds__(THREADS)
    lab_global_vectors(const V* __restrict__ in, unsigned* __restrict__ out, unsigned vectors,
                       int steps) {
    const unsigned thread = blockIdx.x * THREADS + threadIdx.x, threads = gridDim.x * THREADS;
    unsigned at = thread, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        // ---- load: past L1, which would keep what the SM reads again
        V v[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
            v[i] = __ldcg(in + (at + i * threads));
        at += FLIGHT * threads;
        if (at >= vectors) at = thread;
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i)
            sum += lowgemm::sum_of(v[i]);
    }
    out[thread] = sum;
}
