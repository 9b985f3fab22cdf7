// lab  memory levels: latency and bandwidth of shared memory, L1, L2 and DRAM.
//
// Idea      Latency: one thread walks a chain of pointers, each load needing the one before, and counts
//           cycles. Bandwidth: every thread keeps several loads of 16 bytes in flight and adds up what
//           comes. The level is chosen by the size of what is read, and by .cg, which passes by L1.
// Threads   A walk has one thread a block, on every SM that shall measure; bandwidth two blocks an SM.
// Shared    Walked by offsets within the block's shared memory; read as float4, neighbours side by side.
// Check     The chain must end where the host's walk ends; the sums are whole numbers, exact in FP32.
constexpr int SHARED = 0, L1 = 1, L2 = 2;  // and DRAM = 3
constexpr int CHAIN = 1024, WALK = 16;
constexpr int THREADS = 512, FLIGHT = 8, SHARED_CHUNKS = 4;
constexpr unsigned CHUNK_BYTES = THREADS * sizeof(float4);

__device__ __forceinline__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

template <int LEVEL>
__device__ __forceinline__ unsigned long long follow(unsigned long long at) {
    unsigned long long next;
    if constexpr (LEVEL == L1)
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(at));
    else
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(at));
    return next;
}

__device__ __forceinline__ unsigned follow_shared(unsigned at) {
    unsigned next;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(next) : "r"(at) : "memory");
    return next;
}

// starts: the address at which each block's walk begins. ends, cycles: one a block.
// The walk of `warm_up` steps before the clock starts brings the chain into its cache.
template <int LEVEL>
__global__ void __launch_bounds__(1)
    lab_memory_latency(const unsigned long long* __restrict__ starts,
                       unsigned long long* __restrict__ ends, long long* __restrict__ cycles,
                       int warm_up, int steps) {
    unsigned long long at = starts[blockIdx.x];
#pragma unroll 1
    for (int step = 0; step < warm_up; ++step)
        at = follow<LEVEL>(at);
    const long long begin = clock64();
#pragma unroll 1
    for (int step = 0; step < steps; step += WALK) {
#pragma unroll
        for (int i = 0; i < WALK; ++i)
            at = follow<LEVEL>(at);
    }
    ends[blockIdx.x] = at;
    cycles[blockIdx.x] = clock64() - begin;
}

// chain: at each place the next place, 0 to CHAIN - 1. The walk begins at place 0.
extern "C" __global__ void __launch_bounds__(1)
    lab_memory_shared_latency(const unsigned* __restrict__ chain, unsigned* __restrict__ ends,
                              long long* __restrict__ cycles, int steps) {
    __shared__ unsigned places[CHAIN];
    const unsigned first = shared_address(places);
#pragma unroll 1
    for (int i = 0; i < CHAIN; ++i)
        places[i] = first + chain[i] * 4;
    unsigned at = first;
    const long long begin = clock64();
#pragma unroll 1
    for (int step = 0; step < steps; step += WALK) {
#pragma unroll
        for (int i = 0; i < WALK; ++i)
            at = follow_shared(at);
    }
    ends[blockIdx.x] = (at - first) / 4;
    cycles[blockIdx.x] = clock64() - begin;
}

// From shared memory volatile to the assembler as well, which would merge equal addresses.
template <int LEVEL>
__device__ __forceinline__ float4 load(const char* p) {
    float4 v;
    if constexpr (LEVEL == SHARED)
        asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "r"(shared_address(p))
                     : "memory");
    else if constexpr (LEVEL == L2)
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(p));
    else
        asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                     : "l"(p));
    return v;
}

// in: `chunks` (a power of two) of THREADS float4s. A block reads chunk (block + round * stride)
// mod chunks in each round, so that at any time all blocks read different ones. out: one sum a thread.
template <int LEVEL>
__global__ void __launch_bounds__(THREADS)
    lab_memory_bandwidth(const float4* __restrict__ in, float* __restrict__ out, unsigned chunks,
                         unsigned stride, int rounds) {
    __shared__ float4 tile[LEVEL == SHARED ? SHARED_CHUNKS * THREADS : 1];
    if constexpr (LEVEL == SHARED) {
#pragma unroll 1
        for (int i = threadIdx.x; i < SHARED_CHUNKS * THREADS; i += THREADS)
            tile[i] = in[i];
        __syncthreads();
    }
    const char* first = reinterpret_cast<const char*>((LEVEL == SHARED ? tile : in) + threadIdx.x);
    float4 sum = {};
    // In bytes; passing 2^32 is harmless, as what is read is a power of two.
    unsigned chunk = blockIdx.x * CHUNK_BYTES;
    const unsigned mask = chunks * CHUNK_BYTES - 1, step = stride * CHUNK_BYTES;
#pragma unroll 1
    for (int round = 0; round < rounds; round += FLIGHT) {
        float4 v[FLIGHT];
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
            v[i] = load<LEVEL>(first +
                               (LEVEL == SHARED ? i % SHARED_CHUNKS * CHUNK_BYTES : chunk & mask));
            chunk += step;
        }
#pragma unroll
        for (int i = 0; i < FLIGHT; ++i) {
            sum.x += v[i].x;
            sum.y += v[i].y;
            sum.z += v[i].z;
            sum.w += v[i].w;
        }
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}
