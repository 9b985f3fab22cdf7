// ex6  vectorised loads: float4 from global to shared memory.
//
// Idea      One LDG.128 and one STS.128 move four elements. To give every thread whole float4s the
//           tile grows to 64, and with it shared memory.
// Tile      BM = BN = BK = 64, 16 x 16 threads, STRIDE 4: TM = TN = 4 (elements 16 apart).
// Shared    2 x 64 x 64 floats = 32 KiB: fewer blocks fit on an SM than with ex5's 8 KiB.
// Expected  Fewer load instructions, but lower occupancy; shared memory is still read one float at
//           a time along N. On chips with 100 KiB per SM the loss outweighs the gain.
//
// expect: spill_store_bytes == 0; spill_load_bytes == 0
// expect ex6_vectorized<true>: registers <= 80; mix.LDG.128 == 8; mix.LDG.32 == 0; mix.STS.128 == 8
// expect ex6_vectorized<true>: hot_loop.FFMA == 128; hot_loop.ffma_share >= 0.73
// expect ex6_vectorized<true>: hot_loop.LDS.32 == 32; hot_loop.LDS.128 == 8
#include "common.cuh"

constexpr int THREADS = 16, STRIDE = 4, TILE = THREADS * STRIDE;

template <bool Vec4>
__global__ void __launch_bounds__(THREADS* THREADS) ex6_vectorized(LOWGEMM_GEMM_PARAMETERS) {
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
#pragma unroll 8
        for (int k = 0; k < TILE; ++k) {
            float a[STRIDE], b[STRIDE];
#pragma unroll
            for (int i = 0; i < STRIDE; ++i)
                a[i] = As[ty + i * THREADS][k];
#pragma unroll
            for (int j = 0; j < STRIDE; ++j)
                b[j] = Bs[k][tx + j * THREADS];
            lowgemm::outer_product(acc, a, b);
        }
        __syncthreads();
    }

    // ---- store
#pragma unroll
    for (int i = 0; i < STRIDE; ++i) {
#pragma unroll
        for (int j = 0; j < STRIDE; ++j) {
            const unsigned row = origin.row + ty + i * THREADS, col = origin.col + tx + j * THREADS;
            if (row < M && col < N) C[static_cast<size_t>(row) * ldc + col] = acc[i][j];
        }
    }
}
