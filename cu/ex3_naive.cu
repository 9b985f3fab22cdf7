// ex3  naive: one thread, one element of C.
//
// Idea      Each thread walks a row of A and a column of B. threadIdx.x runs along N, so the 32
//           lanes of a warp read neighbouring elements of B and the same element of A.
// Tile      16 x 16 threads, one element each; nothing is kept on the chip.
// Shared    0 bytes.
// Expected  Bound by the load path: two loads for each multiply-add, 0.25 FLOP per byte requested.
//           The caches serve most of them, which is why it is not slower still.
//
// expect: registers <= 40; spill_store_bytes == 0; spill_load_bytes == 0
// expect: hot_loop.LDG.32 == 32; hot_loop.FFMA == 16; mix.LDS == 0  // unrolled by 16
#include "common.cuh"

constexpr int TILE = 16;

__global__ void __launch_bounds__(TILE* TILE) ex3_naive(LOWGEMM_GEMM_PARAMETERS) {
    const auto origin = lowgemm::block_origin<TILE, TILE>(N);
    const unsigned row = origin.row + threadIdx.y, col = origin.col + threadIdx.x;
    if (row >= M || col >= N) return;

    // ---- load and compute
    const float* a = lowgemm::row_of(A, row, lda);
    const float* b = B + col;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        acc += a[k] * *b;
        b += ldb;
    }

    // ---- store
    C[static_cast<size_t>(row) * ldc + col] = acc;
}
