// ex10 cp.async: global to shared memory past the registers, several stages deep.
//
// Idea      LDGSTS copies without a register in between, so the eight prefetch registers of ex9 go
//           and the copies of STAGES - 1 tiles are under way at once. A 16-byte copy cannot
//           transpose: A stays as it lies, and a thread reads four k-steps of a row as one float4,
//           as many LDS.128 in all as with A transposed.
// Tile      As ex8: 128 x 128 x 8, warp 32 x 64, thread 8 x 8, 256 threads; STAGES 3.
// Shared    STAGES x (128 x 12 + 128 x 8) floats = 30 KiB.
// Registers 64 accumulators + 8 x 4 of A + 8 of B + addresses: what the prefetch gives back, the
//           four k-steps of A take.
// Expected  Bound by the FFMA pipe and the register banks. With two blocks per SM ex9 already hides
//           the latency of global memory, so a third stage has little left to win.
//
// expect: registers <= 128; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex10_cp_async<true>: hot_loop.FFMA == 512; hot_loop.ffma_share >= 0.87; hot_loop.BAR == 1
// expect ex10_cp_async<true>: hot_loop.LDS.128 == 32; hot_loop.LDS.32 == 0; hot_loop.LDGSTS.128 == 2
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
#ifndef STAGES
#define STAGES 3
#endif
constexpr int WM = 4 * TM, WN = 8 * TN;
static_assert(BM % WM == 0 && BN % WN == 0, "the block tile must be whole warp tiles of 4TM x 8TN");
static_assert(STAGES >= 2,
              "one stage is computed while another is copied: STAGES must be 2 or more");
static_assert(STAGES * (BM * (BK + 4) + BN * BK) * 4 <= 48 << 10,
              "the tiles exceed 48 KiB of static shared memory");
constexpr int THREADS = BM / WM * (BN / WN) * 32;

// Padded by 4 floats: lanes that read rows 4 apart then meet in different banks.
constexpr int PITCH = BK + 4;

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 2) ex10_cp_async(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ alignas(16) float As[STAGES][BM][PITCH], Bs[STAGES][BK][BN];
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const lowgemm::WarpTile<WM, WN, TM, TN, BN / WN> warp(threadIdx.x);
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
            for (int i = 0; i < TM; ++i) {
                const unsigned row = warp.row_of_quad(i / 4) + i % 4;
                lowgemm::as_float4(a[i][0]) = lowgemm::as_float4(As[current][row][k]);
            }
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                float column[TM], b[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    column[i] = a[i][kk];
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    const unsigned col = warp.col_of_quad(j / 4);
                    lowgemm::as_float4(b[j]) = lowgemm::as_float4(Bs[current][k + kk][col]);
                }
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
            a[i] = As[current][warp.row_of_quad(i / 4) + i % 4][k];
#pragma unroll
        for (int j = 0; j < TN; ++j)
            b[j] = Bs[current][k][warp.col_of_quad(j / 4) + j % 4];
        lowgemm::outer_product(acc, a, b);
    }

    // ---- store
    warp.store(acc, C, ldc, origin, M, N);
}
