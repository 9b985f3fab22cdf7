// ex7  register tiling: RK x RK pieces from shared memory into registers.
//
// Idea      A thread reads a STRIDE x RK piece of A and an RK x STRIDE piece of B as float4, then
//           computes from registers: 8 LDS.128 for 64 multiply-adds instead of 32 reads, 1 / RK.
// Tile      TILE 16, STRIDE 4, RK 4: BM = BN = BK = 64, 16 x 16 threads, TM = TN = 4 (neighbours).
// Shared    2 x 64 x 64 floats = 32 KiB, as ex6.
// Expected  Bound by what shared memory delivers and by global latency: nothing is prefetched, the
//           loads of a tile are waited for before any of it is used.
//
// expect: spill_store_bytes == 0; spill_load_bytes == 0
// expect ex7_register_tile<true>: registers <= 80; hot_loop.FFMA == 256; hot_loop.ffma_share >= 0.86
// expect ex7_register_tile<true>: hot_loop.LDS.128 == 32; hot_loop.LDS.32 == 0
#include "common.cuh"

#ifndef STRIDE
#define STRIDE 4
#endif
#ifndef RK
#define RK 4
#endif
constexpr int THREADS = 16, TILE = THREADS * STRIDE;
static_assert(STRIDE == 4, "a thread's row of C is one float4: STRIDE must be 4");
static_assert(RK == 4, "a piece of A is read as one float4 along k: RK must be 4");

template <bool Vec4>
__global__ void __launch_bounds__(THREADS* THREADS) ex7_register_tile(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ alignas(16) float As[TILE][TILE], Bs[TILE][TILE];
    const auto origin = lowgemm::block_origin<TILE, TILE>(N);
    const unsigned tx = threadIdx.x, ty = threadIdx.y;
    float acc[STRIDE][STRIDE] = {};

    for (unsigned k0 = 0; k0 < K; k0 += TILE) {
        // ---- load: 16 threads take a row of 64, 16 rows at a time
#pragma unroll
        for (int i = 0; i < STRIDE; ++i) {
            const unsigned r = ty + i * THREADS, c = tx * 4;
            lowgemm::as_float4(As[r][c]) = lowgemm::load4_or_zero<Vec4>(
                lowgemm::row_of(A, origin.row + r, lda), k0 + c, K, origin.row + r < M);
            lowgemm::as_float4(Bs[r][c]) = lowgemm::load4_or_zero<Vec4>(
                lowgemm::row_of(B, k0 + r, ldb), origin.col + c, N, k0 + r < K);
        }
        __syncthreads();

        // ---- compute
#pragma unroll 4
        for (int k = 0; k < TILE; k += RK) {
            float a[STRIDE][RK], b[RK][STRIDE];
#pragma unroll
            for (int i = 0; i < STRIDE; ++i)
                lowgemm::as_float4(a[i][0]) = lowgemm::as_float4(As[ty * STRIDE + i][k]);
#pragma unroll
            for (int kk = 0; kk < RK; ++kk)
                lowgemm::as_float4(b[kk][0]) = lowgemm::as_float4(Bs[k + kk][tx * STRIDE]);
#pragma unroll
            for (int kk = 0; kk < RK; ++kk) {
                const float column[STRIDE] = {a[0][kk], a[1][kk], a[2][kk], a[3][kk]};
                lowgemm::outer_product(acc, column, b[kk]);
            }
        }
        __syncthreads();
    }

    // ---- store
#pragma unroll
    for (int i = 0; i < STRIDE; ++i) {
#pragma unroll
        for (int j = 0; j < STRIDE; ++j) {
            const unsigned row = origin.row + ty * STRIDE + i, col = origin.col + tx * STRIDE + j;
            if (row < M && col < N) C[static_cast<size_t>(row) * ldc + col] = acc[i][j];
        }
    }
}
