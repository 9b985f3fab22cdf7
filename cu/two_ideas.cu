// two ideas: a shared-memory tile and a register tile, nothing else.
//
// Idea      Each level must hand on what the multiply-add lanes eat: 8 bytes per lane and cycle. A
//           tile of T in shared memory multiplies what global memory delivers by T; a register tile
//           multiplies what shared memory delivers by its side. The sizes follow from the chip:
//           64 and 4 where an SM has 64 lanes, 64 and 8 where it has 128.
// Tile      BM = BN = 64, BK = 16, TM = TN = RT; (64 / RT)^2 threads.
//           A thread's rows lie SIDE apart, its columns in fours: lanes read neighbours.
// Shared    2 x 64 x 16 floats = 8 KiB.
// Expected  Bound by the lanes if throughput were all. No prefetch, no double buffer: other blocks
//           of the SM fill the time in which one waits for global memory.
//
// expect: registers <= 168; spill_store_bytes == 0; spill_load_bytes == 0
// expect two_ideas<true>: hot_loop.FFMA >= 256; hot_loop.ffma_share >= 0.79
// expect two_ideas<true>: hot_loop.LDS.128 <= 64; hot_loop.LDS.32 == 0
#include "common.cuh"

#ifndef TILE
#define TILE 64
#endif
#ifndef BK
#define BK 16
#endif
#ifndef RT
#define RT 8
#endif
constexpr int SIDE = TILE / RT, THREADS = SIDE * SIDE;
static_assert(TILE % RT == 0, "the register tile must divide the shared tile");
static_assert(THREADS <= 1024, "(TILE / RT)^2 threads: more than 1024, use a larger register tile");
static_assert(2 * TILE * BK * 4 <= 48 << 10, "the tiles exceed 48 KiB of static shared memory");
static_assert(RT % 4 == 0 && BK % 4 == 0, "pieces are read as float4: RT and BK in fours");
static_assert(TILE * BK % (4 * THREADS) == 0, "TILE x BK must be a multiple of 4 x threads");

template <bool Vec4>
__global__ void __launch_bounds__(THREADS) two_ideas(LOWGEMM_GEMM_PARAMETERS) {
    __shared__ alignas(16) float As[TILE][BK], Bs[BK][TILE];
    const auto origin = lowgemm::block_origin<TILE, TILE>(N);
    const unsigned tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    float acc[RT][RT] = {};

    for (unsigned k0 = 0; k0 < K; k0 += BK) {
        // ---- load
#pragma unroll
        for (int i = 0; i < TILE * BK / 4 / THREADS; ++i) {
            const unsigned at = threadIdx.x + i * THREADS;
            const unsigned ar = at / (BK / 4), ac = at % (BK / 4) * 4;
            const unsigned br = at / (TILE / 4), bc = at % (TILE / 4) * 4;
            lowgemm::as_float4(As[ar][ac]) = lowgemm::load4_or_zero<Vec4>(
                lowgemm::row_of(A, origin.row + ar, lda), k0 + ac, K, origin.row + ar < M);
            lowgemm::as_float4(Bs[br][bc]) = lowgemm::load4_or_zero<Vec4>(
                lowgemm::row_of(B, k0 + br, ldb), origin.col + bc, N, k0 + br < K);
        }
        __syncthreads();

        // ---- compute
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[RT], b[RT];
#pragma unroll
            for (int i = 0; i < RT; ++i)
                a[i] = As[ty + i * SIDE][k];
#pragma unroll
            for (int j = 0; j < RT; ++j)
                b[j] = Bs[k][tx * 4 + j / 4 * (4 * SIDE) + j % 4];
            lowgemm::outer_product(acc, a, b);
        }
        __syncthreads();
    }

    // ---- store
#pragma unroll
    for (int i = 0; i < RT; ++i) {
#pragma unroll
        for (int j = 0; j < RT; ++j) {
            const unsigned row = origin.row + ty + i * SIDE;
            const unsigned col = origin.col + tx * 4 + j / 4 * (4 * SIDE) + j % 4;
            if (row < M && col < N) C[static_cast<size_t>(row) * ldc + col] = acc[i][j];
        }
    }
}
