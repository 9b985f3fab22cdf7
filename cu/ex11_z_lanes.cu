// ex11 z lanes: 8 x 16 elements per thread, and lanes in "z" order.
//
// Idea      A larger thread tile reads less per multiply-add: 8 x 16 needs 24 operands for 128, 8 x 8
//           16 for 64. And lanes in "z" order, bit 0 along N and bit 1 along M: two neighbours read
//           one address of A, two that are 2 apart one of B. The hardware merges both cases, so
//           that every LDS.128 takes two passes through shared memory, where those of B took four.
// Tile      256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; STAGES 3.
// Shared    STAGES x (256 x 8 + 8 x 128) floats = 36 KiB. No padding: a thread's rows are 8 apart, so
//           that the lanes of a pass read rows next to each other.
// Registers 128 accumulators + 8 x 4 of A + 16 of B + addresses: one block on an SM, two warps on a
//           scheduler.
// Expected  96 wavefronts per 1024 FFMAs of a warp, where ex10 takes 192: with four schedulers 384 of
//           the 1024 cycles. Bound by the FFMA pipe: the register banks and 48 LDS.128 per 1024 FFMAs,
//           where ex10 has 64, take issue slots from it. With two warps there is little to hide a
//           latency behind: the compiler must load ahead.
//
// expect: registers <= 255; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex11_z_lanes<true>: hot_loop.FFMA == 1024; hot_loop.ffma_share >= 0.90; hot_loop.BAR == 1
// expect ex11_z_lanes<true>: hot_loop.LDS.128 == 48; hot_loop.LDS.32 == 0; hot_loop.LDGSTS.128 == 3
#include "common.cuh"

#ifndef BM
#define BM 256
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
#define TN 16
#endif
#ifndef STAGES
#define STAGES 3
#endif
constexpr int WM = lowgemm::ZOrder::LANES_M * TM, WN = lowgemm::ZOrder::LANES_N * TN;
static_assert(BM % WM == 0 && BN % WN == 0, "the block tile must be whole warp tiles of 8TM x 4TN");
static_assert(STAGES >= 2,
              "one stage is computed while another is copied: STAGES must be 2 or more");
static_assert(STAGES * (BM + BN) * BK * 4 <= 48 << 10,
              "the tiles exceed 48 KiB of static shared memory");
constexpr int THREADS = BM / WM * (BN / WN) * 32;

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 1) ex11_z_lanes(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ alignas(16) float As[STAGES][BM][BK], Bs[STAGES][BK][BN];
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const lowgemm::ZWarpTile<WM, WN, TM, TN, BN / WN> warp(threadIdx.x);
    float acc[TM][TN] = {};

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; ++stage)
        lowgemm::copy_tile_async<Vec4, THREADS>(As[stage], Bs[stage], origin, stage * BK, M, N, K,
                                                A, lda, B, ldb, C, ldc);

    unsigned k0 = 0, current = 0;
    for (; k0 + BK < K; k0 += BK) {
        // ---- load: this tile has arrived for every thread, and all have left the oldest stage
        lowgemm::wait_for_copies<STAGES - 2>();
        __syncthreads();
        const unsigned filled = current == 0 ? STAGES - 1 : current - 1;
        lowgemm::copy_tile_async<Vec4, THREADS>(As[filled], Bs[filled], origin,
                                                k0 + (STAGES - 1) * BK, M, N, K, A, lda, B, ldb, C,
                                                ldc);

        // ---- compute: four k-steps of A at a time, one of B
#pragma unroll
        for (int k = 0; k < BK; k += 4) {
            float a[TM][4];
#pragma unroll
            for (int i = 0; i < TM; ++i)
                lowgemm::as_float4(a[i][0]) = lowgemm::as_float4(As[current][warp.row_of(i)][k]);
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                float column[TM], b[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    column[i] = a[i][kk];
#pragma unroll
                for (int j = 0; j < TN; j += 4)
                    lowgemm::as_float4(b[j]) =
                        lowgemm::as_float4(Bs[current][k + kk][warp.col_of(j)]);
                lowgemm::outer_product(acc, column, b);
            }
        }
        current = current + 1 == STAGES ? 0 : current + 1;
    }

    // ---- compute: the last tile, BK steps or fewer
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
#pragma unroll 1
    for (unsigned k = 0; k < K - k0; ++k) {
        float a[TM], b[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
            a[i] = As[current][warp.row_of(i)][k];
#pragma unroll
        for (int j = 0; j < TN; ++j)
            b[j] = Bs[current][k][warp.col_of(j)];
        lowgemm::outer_product(acc, a, b);
    }

    // ---- store
    warp.store(acc, C, ldc, origin, M, N);
}
