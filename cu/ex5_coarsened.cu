// ex5  thread coarsening: 2 x 2 elements of C per thread.
//
// Idea      A value read from shared memory serves two multiply-adds: four reads for four of them
//           instead of eight. A quarter of the threads cover the same tile.
// Tile      BM = BN = BK = 32, 16 x 16 threads, TM = TN = 2 (elements 16 apart, so that the lanes
//           of a warp stay neighbours in every access).
// Shared    2 x 32 x 32 floats = 8 KiB: occupancy stays full.
// Expected  Bound by shared memory, at twice the rate of ex4.
//
// expect: registers <= 40; spill_store_bytes == 0; spill_load_bytes == 0
// expect: hot_loop.FFMA == 128; hot_loop.ffma_share >= 0.41
// expect: hot_loop.LDS.32 == 64; hot_loop.LDS.128 == 16
#include "common.cuh"

constexpr int THREADS = 16, STRIDE = 2, TILE = THREADS * STRIDE;

__global__ void __launch_bounds__(THREADS* THREADS) ex5_coarsened(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const auto origin = lowgemm::block_origin<TILE, TILE>(N);
    const unsigned tx = threadIdx.x, ty = threadIdx.y;
    float acc[STRIDE][STRIDE] = {};

    for (unsigned k0 = 0; k0 < K; k0 += TILE) {
        // ---- load
#pragma unroll
        for (int i = 0; i < STRIDE; ++i) {
#pragma unroll
            for (int j = 0; j < STRIDE; ++j) {
                const unsigned r = ty + i * THREADS, c = tx + j * THREADS;
                As[r][c] = origin.row + r < M && k0 + c < K
                               ? lowgemm::row_of(A, origin.row + r, lda)[k0 + c]
                               : 0.0f;
                Bs[r][c] = k0 + r < K && origin.col + c < N
                               ? lowgemm::row_of(B, k0 + r, ldb)[origin.col + c]
                               : 0.0f;
            }
        }
        __syncthreads();

        // ---- compute
#pragma unroll
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
