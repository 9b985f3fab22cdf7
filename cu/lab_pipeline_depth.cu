// lab  pipeline depth: how many k-tiles under way at once hide the latency of memory.
//
// Idea      One block on an SM copies tile after tile into shared memory (cp.async) and computes on
//           each. With one stage it copies, waits, computes. With STAGES it computes on one tile while
//           STAGES - 1 are under way: a tile then takes the longest of computing, of its share of the
//           bandwidth, and of its latency divided by the tiles under way.
// Tile      256 threads x 16 bytes = 4 KiB. The computation is a chain of FFMAS dependent
//           multiply-adds a thread, 4 cycles each, whatever else happens.
// Source    Every block has `window` tiles of its own and reads them in turn, `tiles` in all: a window
//           larger than L2 comes from DRAM, a small one from L2.
// Check     With whole numbers every sum is exact in FP32.
constexpr int THREADS = 256;

__device__ __forceinline__ void copy_async(float4& to, const float4* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n\tcp.async.commit_group;" ::"r"(at),
                 "l"(from)
                 : "memory");
}

// one: 1.0f, which the compiler must not know. out: FFMAS times the sum of a thread's float4s.
template <int STAGES, int FFMAS>
__global__ void __launch_bounds__(THREADS)
    lab_pipeline_depth(const float4* __restrict__ in, float* __restrict__ out, int tiles,
                       int window, float one) {
    constexpr int AHEAD = STAGES == 1 ? 1 : STAGES - 1;  // tiles under way while one is waited for
    __shared__ float4 tile[STAGES][THREADS];
    const float4* const first =
        in + static_cast<size_t>(blockIdx.x) * window * THREADS + threadIdx.x;
    const float4 *const end = first + static_cast<size_t>(window) * THREADS, *from = first;
    auto copy = [&](int stage) {
        copy_async(tile[stage][threadIdx.x], from);
        from += THREADS;
        if (from == end) from = first;
    };
    // A thread reads what a thread of the next warp copied.
    const int neighbour = (threadIdx.x + 32) % THREADS;
    float sum = 0.0f;

    if constexpr (STAGES > 1) {
#pragma unroll
        for (int stage = 0; stage < AHEAD; ++stage)
            copy(stage);
    }
    int current = 0;
#pragma unroll 1
    for (int t = 0; t < tiles; ++t) {
        // ---- load: surplus copies behind the last tile begin the window again and are not used
        if constexpr (STAGES == 1) copy(0);
        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
        __syncthreads();
        if constexpr (STAGES > 1) copy(current == 0 ? STAGES - 1 : current - 1);

        // ---- compute
        const float4 v = tile[current][neighbour];
        const float value = (v.x + v.y) + (v.z + v.w);
#pragma unroll
        for (int i = 0; i < FFMAS; ++i)
            sum = sum * one + value;
        if constexpr (STAGES == 1)
            __syncthreads();
        else
            current = current + 1 == STAGES ? 0 : current + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
