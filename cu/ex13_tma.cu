// ex13  TMA: the hardware copies whole tiles, and fills with zeros what lies outside of A and B.
//
// Idea      One thread asks for a tile of A and a tile of B by their coordinates; TMA computes the
//           addresses and writes them into shared memory as they are needed. No thread holds
//           pointers, and no edge needs a case of its own: beyond M, N and K stand zeros. An
//           mbarrier for each stage tells that both tiles have come; the block's barrier tells
//           that all have left the stage that is filled next. Persistent, stream-K: see
//           ex13_stream_k.cu.
// Loop      One basic block: a wait that does not succeed at once leaves the loop, which begins
//           again when the tile is there. What was read of it in between is read again.
// Tile      256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; 4 stages. Lanes in "z" order.
// Shared    4 x 16 KiB, dynamic: tiles of 256 x 8 and 8 x 128 floats, and the stage's mbarrier.
// Registers 128 accumulators + 8 x 4 of A (four k-steps, as it lies along k) + 16 of B + addresses.
// Expected  Bound by the FFMA pipe. Two copies a tile take the place of three a thread; what works out
//           a stage, its parity and who asks costs about as many instructions as pointers did.
// expect: registers <= 255; spill_store_bytes == 0; spill_load_bytes == 0
// expect: hot_loop.FFMA == 1024; hot_loop.LDS.128 == 48; hot_loop.ffma_share >= 0.92
// expect: hot_loop.UTMALDG == 2; hot_loop.BAR == 1
// Needs     Tensor maps of A (box 256 x 8) and B (box 8 x 128), not swizzled; sm_90 or later.
#include "common.cuh"
#include "stream_k.cuh"
#include "tma.cuh"

using namespace lowgemm;

constexpr int BM = 256, BN = 128, BK = 8, TM = 8, TN = 16, STAGES = 4, THREADS = 256;
constexpr int WM = 64, WN = 64;
using Warp = ZWarpTile<WM, WN, TM, TN, BN / WN>;
constexpr unsigned A_PITCH = BK * 4, B_PITCH = BN * 4;
constexpr unsigned A_BYTES = BM * A_PITCH, B_BYTES = BK * B_PITCH;
// A power of two: the ring ends by a mask, and the bit above it is the parity of the round.
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE, BARRIER = A_BYTES + B_BYTES;
constexpr int AHEAD = STAGES - 1;
static_assert(BARRIER + 8 <= STAGE, "a stage has no room for its mbarrier");

__device__ __forceinline__ unsigned stage_of(unsigned position) {
    return position & (RING - 1);
}

__device__ __forceinline__ unsigned parity_of(unsigned position) {
    return position / RING & 1;
}

// partial: BM x BN floats a block; flags: zeros, one a block, and zeros again afterwards. K is at
// least 1. The grid has at most as many blocks as the chip runs at once: they wait for each other.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    ex13_tma(int M, int N, int K, const __grid_constant__ TensorMap a,
             const __grid_constant__ TensorMap b, float* C, int ldc, float* partial,
             unsigned* flags) {
    extern __shared__ __align__(1024) float4 dynamic[];
    const unsigned base = shared_address(dynamic);
    const unsigned t = threadIdx.x;
    const Warp warp(t);
    const unsigned tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    const unsigned depth = (K + BK - 1) / BK;
    unsigned from_a = base + warp.row * A_PITCH, from_b = base + A_BYTES + warp.col * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(from_a), "+r"(from_b));
    // Plus nothing, which the compiler does not know: the addresses stay in uniform registers.
    const TensorMap *map_a = &a + (gridDim.y - 1), *map_b = &b + (gridDim.y - 1);

    if (t == 0) {
        for (int s = 0; s < STAGES; ++s)
            init_barrier(base + s * STAGE + BARRIER, 1);
        fence_barrier_init();
    }
    __syncthreads();

    Work copying(tiles, depth), computing(tiles, depth);
    unsigned copy_left = 0;
    int copy_m = 0, copy_n = 0, copy_k = 0;
    auto advance = [&] {
        copy_left = 1;
        copy_k = depth * BK;  // nothing is left: boxes behind K are zeros and cost no memory access
        // A register of its own, which a half of another one must not hold: that would have to
        // be kept through the loop.
        unsigned another = copying.next();
        asm volatile("" : "+r"(another));
        if (another) {
            copy_left = copying.last - copying.first;
            copy_m = copying.tile / tiles_n * BM, copy_n = copying.tile % tiles_n * BN;
            copy_k = copying.first * BK;
        }
    };
    auto copy = [&](unsigned position) {
        const unsigned to = base + stage_of(position);
        load_boxes(t < 32, to + BARRIER, A_BYTES + B_BYTES, to, map_a, copy_k, copy_m, to + A_BYTES,
                   map_b, copy_n, copy_k);
        copy_k += BK;
    };
    float4 x[TM], y[TN / 4];
    auto load_a = [&](unsigned stage, int k) {
#pragma unroll
        for (int i = 0; i < TM; ++i)
            x[i] = load_shared(from_a + stage + i * Warp::LANES_M * A_PITCH + k * 4);
    };
    auto load_b = [&](unsigned stage, int k) {
#pragma unroll
        for (int j = 0; j < TN / 4; ++j)
            y[j] = load_shared(from_b + stage + k * B_PITCH + j * Warp::LANES_N * 16);
    };

    float acc[TM][TN] = {};
    unsigned position = 0;
    bool arrived = false;  // whether the tile at the position is there, and its first fragments
    // ---- load: the first tiles
    advance();
#pragma unroll 1
    for (int s = 0; s < AHEAD; ++s) {
        copy(s * STAGE);
        if (--copy_left == 0) advance();
    }

    bool more = computing.next();
    unsigned left = computing.last - computing.first;
#pragma unroll 1
    while (more) {
        // ---- compute: until this piece ends, or the one that is copied, or a tile is late
        if (!arrived) {
            wait_for_phase(base + stage_of(position) + BARRIER, parity_of(position));
            load_a(stage_of(position), 0);
            load_b(stage_of(position), 0);
        }
        const unsigned steps = min(left, copy_left);
        unsigned count = steps;
        if (count)
#pragma unroll 1
            do {
#pragma unroll
                for (int k = 0; k < BK; ++k) {
#pragma unroll
                    for (int i = 0; i < TM; ++i)
#pragma unroll
                        for (int j = 0; j < TN; ++j)
                            acc[i][j] += (&x[i].x)[k % 4] * (&y[j / 4].x)[j % 4];
                    if (k == 2) {
                        const unsigned next = position + STAGE;
                        arrived = try_wait(base + stage_of(next) + BARRIER, parity_of(next));
                        // All have left the tile before this.
                        __syncthreads();
                        copy(position + AHEAD * STAGE);
                    }
                    if (k == BK - 1) position += STAGE;
                    const int next = (k + 1) % BK;
                    load_b(stage_of(position), next);
                    if (next % 4 == 0) load_a(stage_of(position), next);
                }
                arrived = __all_sync(~0u, arrived);
            } while (--count && arrived);
        left -= steps - count;
        copy_left -= steps - count;
        if (!copy_left) advance();
        if (left) continue;

        if (computing.last < computing.depth) {
            leave_sum<THREADS>(acc, partial, flags);  // a higher block adds it to its own
        } else {
            if (computing.first > 0) add_sums<THREADS>(acc, computing, partial, flags);
            // ---- store
            const Origin origin = {computing.tile / tiles_n * BM, computing.tile % tiles_n * BN};
            warp.store(acc, C, ldc, origin, M, N);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                acc[i][j] = 0.0f;
        more = computing.next();
        left = computing.last - computing.first;
    }
    // TMA may not write into the shared memory of a block that has ended.
#pragma unroll 1
    for (int s = 0; s < AHEAD; ++s, position += STAGE)
        wait_for_phase(base + stage_of(position) + BARRIER, parity_of(position));
}
