// ex8  the full rebuild: warp tiles, decoupled BM BN BK, and two prefetches.
//
// Idea      Threads are numbered in one dimension; a warp's 4 x 8 lanes cover a 32 x 64 tile. A
//           small BK keeps shared memory small under a large block tile. A is stored transposed, so
//           that a thread reads its rows as float4. The next k-tile travels from global memory to
//           registers while this one is computed; the next k-step's fragments from shared memory to
//           the other of two register sets.
// Tile      128 x 128 x 8, warp 32 x 64, thread 8 x 8, 256 threads.
// Shared    (128 + 128) x 8 floats = 8 KiB.
// Registers 64 accumulators + 2 x 16 fragments + 8 prefetched + addresses: at most 128, so that two
//           blocks fit on an SM.
// Expected  Bound by the FFMA pipe and the register banks; two barriers per k-tile remain.
//
// expect: registers <= 128; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex8_warp_tile<true>: hot_loop.FFMA == 512; hot_loop.ffma_share >= 0.89
// expect ex8_warp_tile<true>: hot_loop.LDS.128 == 32; hot_loop.LDS.32 == 0; hot_loop.BAR == 2
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
static_assert((BM + BN) * BK * 4 <= 48 << 10, "the tiles exceed 48 KiB of static shared memory");
constexpr int THREADS = BM / WM * (BN / WN) * 32;

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 2) ex8_warp_tile(LOWGEMM_GEMM_PARAMETERS) {
    using Tile = lowgemm::Prefetch<Vec4, BM, BN, BK, THREADS>;
    __shared__ alignas(16) float As[BK][BM], Bs[BK][BN];
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const lowgemm::WarpTile<WM, WN, TM, TN, BN / WN> warp(threadIdx.x);
    float acc[TM][TN] = {};
    lowgemm::Fragment<TM, TN> fragment[2];
    Tile next;

    next.load(threadIdx.x, origin, 0, M, N, K, A, lda, B, ldb, C, ldc);
    next.store(threadIdx.x, As, Bs);
    __syncthreads();

    unsigned k0 = 0;
    for (; k0 + BK < K; k0 += BK) {
        // ---- load: the next tile, on its way while this one is computed
        next.load(threadIdx.x, origin, k0 + BK, M, N, K, A, lda, B, ldb, C, ldc);

        // ---- compute
        fragment[0].load(warp, As[0], Bs[0], Tile::swizzle(0));
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            if (k + 1 < BK)
                fragment[(k + 1) % 2].load(warp, As[k + 1], Bs[k + 1], Tile::swizzle(k + 1));
            lowgemm::outer_product(acc, fragment[k % 2].a, fragment[k % 2].b);
        }
        __syncthreads();
        next.store(threadIdx.x, As, Bs);
        __syncthreads();
    }

    // ---- compute: the last tile, BK steps or fewer
#pragma unroll 1
    for (unsigned k = 0; k < K - k0; ++k) {
        fragment[0].load(warp, As[k], Bs[k], Tile::swizzle(k));
        lowgemm::outer_product(acc, fragment[0].a, fragment[0].b);
    }

    // ---- store
    warp.store(acc, C, ldc, origin, M, N);
}
