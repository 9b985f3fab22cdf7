// ex9  double buffering: one barrier per k-tile.
//
// Idea      Two shared buffers: while one is read, the next tile is written to the other, so the
//           barrier between reading and writing the same buffer goes.
// Tile      As ex8: 128 x 128 x 8, warp 32 x 64, thread 8 x 8, 256 threads.
// Shared    2 x 8 KiB = 16 KiB.
// Registers As ex8.
// Expected  Bound by the FFMA pipe and the register banks. A barrier costs most where few warps are
//           there to fill the wait; with two blocks per SM the other block does, so the gain of one
//           barrier less differs between chips.
//
// expect: registers <= 128; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex9_double_buffer<true>: hot_loop.FFMA == 1024; hot_loop.ffma_share >= 0.89  // two tiles
// expect ex9_double_buffer<true>: hot_loop.LDS.128 == 64; hot_loop.LDS.32 == 0; hot_loop.BAR == 2
#include "common.cuh"

#ifndef BM
#define BM 128
#endif
#ifndef BN
#define BN 128
#endif
#ifndef BK
#define BK 8
#endif
#ifndef TM
#define TM 8
#endif
#ifndef TN
#define TN 8
#endif
constexpr int WM = 4 * TM, WN = 8 * TN;
static_assert(BM % WM == 0 && BN % WN == 0, "the block tile must be whole warp tiles of 4TM x 8TN");
static_assert(2 * (BM + BN) * BK * 4 <= 48 << 10,
              "the tiles exceed 48 KiB of static shared memory");
constexpr int THREADS = BM / WM * (BN / WN) * 32;

// The work of one block; where in C its tile lies is the caller's choice.
template <bool Vec4>
__device__ __forceinline__ void ex9_block(lowgemm::Origin origin, LOWGEMM_GEMM_PARAMETERS) {
    using Tile = lowgemm::Prefetch<Vec4, BM, BN, BK, THREADS>;
    __shared__ alignas(16) float As[2][BK][BM], Bs[2][BK][BN];
    const lowgemm::WarpTile<WM, WN, TM, TN, BN / WN> warp(threadIdx.x);
    float acc[TM][TN] = {};
    lowgemm::Fragment<TM, TN> fragment[2];
    Tile next;

    next.load(threadIdx.x, origin, 0, M, N, K, A, lda, B, ldb, C, ldc);
    next.store(threadIdx.x, As[0], Bs[0]);
    __syncthreads();

    unsigned k0 = 0, current = 0;
    fragment[0].load(warp, As[0][0], Bs[0][0], Tile::swizzle(0));
    // Two tiles per iteration: the buffers' addresses become constants, 18 instructions less a tile.
#pragma unroll 2
    for (; k0 + BK < K; k0 += BK) {
        // ---- load: the next tile, on its way while this one is computed
        next.load(threadIdx.x, origin, k0 + BK, M, N, K, A, lda, B, ldb, C, ldc);

        // ---- compute: the last step's fragments come from the next tile, behind the barrier
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k + 1 < BK) {
                fragment[(k + 1) % 2].load(warp, As[current][k + 1], Bs[current][k + 1],
                                           Tile::swizzle(k + 1));
            } else {
                current ^= 1;
                next.store(threadIdx.x, As[current], Bs[current]);
                __syncthreads();
                fragment[0].load(warp, As[current][0], Bs[current][0], Tile::swizzle(0));
            }
            lowgemm::outer_product(acc, fragment[k % 2].a, fragment[k % 2].b);
        }
    }

    // ---- compute: the last tile, BK steps or fewer
#pragma unroll 1
    for (unsigned k = 0; k < K - k0; ++k) {
        fragment[0].load(warp, As[current][k], Bs[current][k], Tile::swizzle(k));
        lowgemm::outer_product(acc, fragment[0].a, fragment[0].b);
    }

    // ---- store
    warp.store(acc, C, ldc, origin, M, N);
}

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 2) ex9_double_buffer(LOWGEMM_GEMM_PARAMETERS) {
    ex9_block<Vec4>(lowgemm::block_origin<BM, BN>(N), M, N, K, A, lda, B, ldb, C, ldc);
}
