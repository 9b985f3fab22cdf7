// lab  clusters: tiles that several blocks need are copied from L2 once.
//
// Idea      Blocks of a GEMM need, at each step along k, an A tile of their row and a B tile of their
//           column. In a cluster of CM x CN blocks each block copies 1/CN of its A tile and 1/CM of its
//           B tile, and TMA writes that share into the shared memory of all blocks that need it.
// Copies    cp.async.bulk of contiguous tiles, as a packed layout has them: no tensor map is needed.
// Barriers  full: one arrival and the bytes of both tiles, wherever they come from. empty: all warps
//           of all blocks into which this block writes have read the stage.
// Safety    A wait that takes over LIMIT cycles sets the error flag and ends the loop; nothing hangs.
// Check     Sums of whole numbers, exact in FP32, over an eighth of each tile, another one each step.
#include "tma.cuh"

using namespace lowgemm;

constexpr int TILE_FLOATS = 4096, STAGES = 3;
constexpr unsigned TILE_BYTES = TILE_FLOATS * 4;
constexpr int CONSUMERS = 128, WARPS = CONSUMERS / 32, THREADS = CONSUMERS + 32;
constexpr int PARTS = TILE_FLOATS / (CONSUMERS * 4);
constexpr long long LIMIT = 1 << 24;

// On the barrier at the same place in another block of the cluster. Without a scope: it orders reads of
// shared memory before, and a release for the cluster would be a fence in global memory each time.
__device__ __forceinline__ void arrive_remote(unsigned barrier, unsigned rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// Whether the phase of that parity ended in time.
__device__ __forceinline__ bool wait(unsigned barrier, unsigned parity) {
    if (try_wait(barrier, parity)) return true;
    const long long begin = clock64();
    while (!try_wait(barrier, parity))
        if (clock64() - begin > LIMIT) return false;
    return true;
}

__device__ __forceinline__ void cluster_barrier() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
}

// To this block, or to all blocks of the cluster that `blocks` names.
template <bool Multicast>
__device__ __forceinline__ void copy(unsigned to, const float* from, unsigned bytes,
                                     unsigned barrier, unsigned short blocks) {
    if constexpr (Multicast)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1], %2, [%3], %4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
}

// a, b: tile rows (of A) and tile columns (of B), each of `depth` tiles. Cluster c reads rows from
// c * CM on, columns from c * CN on, and begins at depth 5 c, so that not all ask for one tile.
// out: a float for each consumer thread. error: not 0 if a wait took too long. depth: a power of 2.
template <int CM, int CN, bool Multicast>
__global__ void __launch_bounds__(THREADS)
    lab_clusters(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
                 int* __restrict__ error, int rows, int depth, int steps) {
    // At a multiple of 128 bytes: otherwise a bulk copy goes in requests of 32 bytes.
    extern __shared__ __align__(128) float4 dynamic[];
    __shared__ unsigned long long full[STAGES], empty[STAGES];
    float* const tiles = reinterpret_cast<float*>(dynamic);  // A and B of each stage
    constexpr bool SHARE_A = Multicast && CN > 1, SHARE_B = Multicast && CM > 1;
    constexpr int READERS = 1 + (SHARE_A ? CN - 1 : 0) + (SHARE_B ? CM - 1 : 0);
    const unsigned cluster = blockIdx.x / (CM * CN), rank = blockIdx.x % (CM * CN);
    const unsigned m = rank / CN, n = rank % CN;
    const unsigned row = (cluster * CM + m) % rows, col = (cluster * CN + n) % rows;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init_barrier(shared_address(&full[s]), 1);
            init_barrier(shared_address(&empty[s]), READERS * WARPS);
        }
        fence_barrier_init();
    }
    __syncthreads();
    cluster_barrier();

    if (threadIdx.x >= CONSUMERS) {
        // ---- load: one thread keeps STAGES steps on their way
        if (threadIdx.x == CONSUMERS) {
            constexpr unsigned SHARE_OF_A = TILE_FLOATS / (SHARE_A ? CN : 1);
            constexpr unsigned SHARE_OF_B = TILE_FLOATS / (SHARE_B ? CM : 1);
            const unsigned from_a = SHARE_A ? n * SHARE_OF_A : 0;
            const unsigned from_b = SHARE_B ? m * SHARE_OF_B : 0;
            const unsigned short same_row = ((1u << CN) - 1) << (m * CN);
            unsigned short same_col = 0;
            for (int i = 0; i < CM; ++i)
                same_col |= 1u << (i * CN + n);
            for (int step = 0; step < steps; ++step) {
                const int stage = step % STAGES, use = step / STAGES;
                if (use > 0 && !wait(shared_address(&empty[stage]), (use - 1) & 1)) {
                    atomicExch(error, 1);
                    break;
                }
                const unsigned at = (step + cluster * 5) & (depth - 1);
                const size_t tile_a = (size_t(row) * depth + at) * TILE_FLOATS + from_a;
                const size_t tile_b = (size_t(col) * depth + at) * TILE_FLOATS + from_b;
                float* to = tiles + stage * 2 * TILE_FLOATS;
                const unsigned barrier = shared_address(&full[stage]);
                arrive_and_expect(barrier, 2 * TILE_BYTES);
                copy<SHARE_A>(shared_address(to + from_a), a + tile_a, SHARE_OF_A * 4, barrier,
                              same_row);
                copy<SHARE_B>(shared_address(to + TILE_FLOATS + from_b), b + tile_b, SHARE_OF_B * 4,
                              barrier, same_col);
            }
        }
    } else {
        // ---- compute: hardly anything, so that the copies are the bound
        float sum = 0.0f;
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES;
            // The whole warp goes on, or none of it: it meets again below.
            if (!__all_sync(~0u, wait(shared_address(&full[stage]), step / STAGES & 1))) {
                atomicExch(error, 2);
                break;
            }
            const float* tile = tiles + stage * 2 * TILE_FLOATS;
            const int part = (step % PARTS * CONSUMERS + threadIdx.x) * 4;
            const float4 x = *reinterpret_cast<const float4*>(tile + part);
            const float4 y = *reinterpret_cast<const float4*>(tile + TILE_FLOATS + part);
            sum += x.x + 2.0f * x.y + 3.0f * x.z + 4.0f * x.w + y.x + 2.0f * y.y + 3.0f * y.z +
                   4.0f * y.w;
            __syncwarp();
            // The stage is free for all blocks that write into it.
            if (threadIdx.x % 32 == 0) {
                const unsigned barrier = shared_address(&empty[stage]);
                arrive_remote(barrier, rank);
                if constexpr (SHARE_A)
                    for (int j = 0; j < CN; ++j)
                        if (j != n) arrive_remote(barrier, m * CN + j);
                if constexpr (SHARE_B)
                    for (int i = 0; i < CM; ++i)
                        if (i != m) arrive_remote(barrier, i * CN + n);
            }
        }
        out[blockIdx.x * CONSUMERS + threadIdx.x] = sum;
    }
    // No block ends while another may still write into it or arrive at its barriers.
    __syncthreads();
    cluster_barrier();
}
