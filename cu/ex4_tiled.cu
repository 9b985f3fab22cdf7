// ex4  shared-memory tiling: load once, use TILE times.
//
// Idea      The block copies a TILE x TILE piece of A and of B into shared memory; every element
//           is then read TILE times from there instead of from global memory.
// Tile      BM = BN = BK = TILE, TILE x TILE threads, one element of C each.
// Shared    2 TILE^2 floats: 2 KiB with TILE 16, 8 KiB with TILE 32.
// Expected  Bound by shared memory: still two reads for each multiply-add, and two barriers per
//           k-tile, which are many with TILE 16.
//
// expect: registers <= 40; spill_store_bytes == 0; spill_load_bytes == 0
// expect: hot_loop.FFMA >= 16; hot_loop.LDS.32 >= 16; hot_loop.ffma_share >= 0.25
// expect: hot_loop.LDS.128 >= 4  // a row of As is the same for all lanes: four at once
#include "common.cuh"

#ifndef TILE
#define TILE 32
#endif
static_assert(TILE * TILE <= 1024, "a block has at most 1024 threads: TILE must be 32 or less");

__global__ void __launch_bounds__(TILE* TILE) ex4_tiled(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ float As[TILE][TILE], Bs[TILE][TILE];
    const auto origin = lowgemm::block_origin<TILE, TILE>(N);
    const unsigned tx = threadIdx.x, ty = threadIdx.y;
    const unsigned row = origin.row + ty, col = origin.col + tx;
    float acc = 0.0f;

    for (unsigned k0 = 0; k0 < K; k0 += TILE) {
        // ---- load: zeros outside, so that the sum needs no guard
        As[ty][tx] = row < M && k0 + tx < K ? lowgemm::row_of(A, row, lda)[k0 + tx] : 0.0f;
        Bs[ty][tx] = k0 + ty < K && col < N ? lowgemm::row_of(B, k0 + ty, ldb)[col] : 0.0f;
        __syncthreads();

        // ---- compute
#pragma unroll
        for (int k = 0; k < TILE; ++k)
            acc += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }

    // ---- store
    if (row < M && col < N) C[static_cast<size_t>(row) * ldc + col] = acc;
}
