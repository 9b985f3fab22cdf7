// ex12 branch-free: the main loop is one block of code, and nothing stands in it but what must.
//
// Idea      No test for the end of the sum: where no tile is left to copy, the last one is copied again,
//           to a place where nobody reads it. Pointers go on by an addition, and the ring of stages,
//           whose length is a power of two, ends by a mask; ex11 computes every address anew. The
//           barrier stands in the middle of a tile, so that the next tile's first fragments are read
//           before this one ends. FFMAs are walked column by column like a snake: each has an operand in
//           common with the one before it. On compute capability 10.0 and 10.3 two are one FFMA2.
// Tile      As ex11: 256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; STAGES 4.
// Shared    4 x (256 x 8 + 8 x 128) floats, 16 KiB apart for the mask = 64 KiB, dynamic: static shared
//           memory ends at 48 KiB.
// Registers As ex11: 128 accumulators + 8 x 4 of A + 16 of B + addresses.
// Expected  1024 FFMAs with 48 LDS.128 and about 20 other instructions, where ex11 has about 50. What is
//           left is in ptxas's hands: some 200 cycles of register-bank conflicts an iteration, because it
//           keeps neither the snake nor one register an accumulator. FFMA2 does two multiply-adds in one
//           issue slot, but not in less time on the FMA pipe: other instructions then find free slots.
// Needs     The launch gives 64 KiB of dynamic shared memory.
//
// expect: registers <= 255; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex12_branch_free<true>: hot_loop.blocks == 1; hot_loop.BAR == 1; hot_loop.LDGSTS.128 == 3
// expect ex12_branch_free<true>: hot_loop.LDS.128 == 48; hot_loop.LDS.32 == 0
// expect ex12_branch_free<true>: hot_loop.FFMA == 1024; hot_loop.instructions <= 1096
// expect ex12_branch_free<true>: [sm_100, sm_103] hot_loop.FFMA == 0
// expect ex12_branch_free<true>: [sm_100, sm_103] hot_loop.FFMA2 == 512
// expect ex12_branch_free<true>: [sm_100, sm_103] hot_loop.instructions <= 584
#include "common.cuh"
#include "tile_source.cuh"

#ifndef STAGES
#define STAGES 4
#endif
static_assert(STAGES > 2 && (STAGES & (STAGES - 1)) == 0,
              "the ring of stages ends by a mask: STAGES must be a power of two, 4 or more");
constexpr int BM = 256, BN = 128, BK = 8, TM = 8, TN = 16, THREADS = 256;
constexpr int WM = 64, WN = 64;
constexpr unsigned A_BYTES = BM * BK * 4, A_PITCH = BK * 4, B_PITCH = BN * 4;
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE;  // a power of two: the ring ends by a mask
constexpr int AHEAD = STAGES - 1;
using Warp = lowgemm::ZWarpTile<WM, WN, TM, TN, BN / WN>;

// acc += a b^T, column by column like a snake: of two operands every FFMA keeps one from the FFMA
// before it, at a column's end too. On compute capability 10.0 and 10.3 two neighbours of a row are one
// FFMA2, with half the instructions for the same work; elsewhere fma.rn.f32x2 would be two FFMAs.
__device__ __forceinline__ void snake_product(float (&acc)[TM][TN], const float (&a)[TM],
                                              const float (&b)[TN]) {
#if __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#pragma unroll
    for (int j = 0; j < TN; j += 2)
#pragma unroll
        for (int step = 0; step < TM; ++step) {
            const int i = j / 2 % 2 ? TM - 1 - step : step;
            asm("{.reg .b64 aa, bb, cc;\n"
                "mov.b64 aa, {%2, %2};\n"
                "mov.b64 bb, {%3, %4};\n"
                "mov.b64 cc, {%0, %1};\n"
                "fma.rn.f32x2 cc, aa, bb, cc;\n"
                "mov.b64 {%0, %1}, cc;}"
                : "+f"(acc[i][j]), "+f"(acc[i][j + 1])
                : "f"(a[i]), "f"(b[j]), "f"(b[j + 1]));
        }
#else
#pragma unroll
    for (int j = 0; j < TN; ++j)
#pragma unroll
        for (int step = 0; step < TM; ++step) {
            const int i = j % 2 ? TM - 1 - step : step;
            acc[i][j] += a[i] * b[j];
        }
#endif
}

// The k-steps from `done` on, which fill no tile, and C. The place of the thread is read anew: otherwise
// registers would hold it through the main loop.
__device__ __forceinline__ void finish(float (&acc)[TM][TN], unsigned done,
                                       LOWGEMM_GEMM_PARAMETERS) {
    unsigned thread, block;
    asm volatile("mov.u32 %0, %%tid.x;\n mov.u32 %1, %%ctaid.x;" : "=r"(thread), "=r"(block));
    const Warp warp(thread);
    const unsigned blocks_along_n = (N + BN - 1u) / BN;
    const lowgemm::Origin origin = {block / blocks_along_n * BM, block % blocks_along_n * BN};
    // ---- compute: the k-steps that fill no tile, from global memory
#pragma unroll 1
    for (unsigned k = done; k < K; ++k) {
        float x[TM], y[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
            x[i] = lowgemm::row_of(A, min(origin.row + warp.row_of(i), M - 1u), lda)[k];
#pragma unroll
        for (int j = 0; j < TN; ++j)
            y[j] = lowgemm::row_of(B, k, ldb)[min(origin.col + warp.col_of(j), N - 1u)];
        snake_product(acc, x, y);
    }

    // ---- store
    warp.store(acc, C, ldc, origin, M, N);
}

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 1) ex12_branch_free(LOWGEMM_GEMM_PARAMETERS) {
    extern __shared__ __align__(1024) float4 dynamic[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const unsigned t = threadIdx.x;
    const Warp warp(t);
    using Source = lowgemm::TileSource<Vec4, BM, BN>;
    unsigned to = base + Source::target();
    unsigned to_b = Source::target_b();
    unsigned from_a = base + warp.row * A_PITCH, from_b = base + A_BYTES + warp.col * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(to), "+r"(from_a), "+r"(from_b));
    Source source;
    source.begin(origin, 0, M, N, K, A, lda, B, ldb, C, ldc);
    const unsigned tiles = K / BK;
    float acc[TM][TN] = {};

    if (tiles) {
        // ---- load: the first tiles
#pragma unroll
        for (int s = 0; s < AHEAD; ++s) {
            if (s) source.advance(s < tiles ? BK : 0, ldb);
            source.copy(to + s * STAGE, to + s * STAGE + to_b);
        }
        lowgemm::wait_for_copies<AHEAD - 1>();
        __syncthreads();
        float4 a[TM], b[TN / 4];
#pragma unroll
        for (int i = 0; i < TM; ++i)
            a[i] = lowgemm::load_shared(from_a + i * (Warp::LANES_M * A_PITCH));
#pragma unroll
        for (int j = 0; j < TN / 4; ++j)
            b[j] = lowgemm::load_shared(from_b + j * (Warp::LANES_N * 16));

        unsigned count = tiles, now = 0, target = to + AHEAD * STAGE;
#pragma unroll 1
        do {
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                // ---- compute
                float column[TM], row[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    column[i] = (&a[i].x)[k % 4];
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    row[j] = (&b[j / 4].x)[j % 4];
                snake_product(acc, column, row);
                if (k == 2) {
                    lowgemm::wait_for_copies<AHEAD - 2>();
                    __syncthreads();
                    source.advance(count > AHEAD ? BK : 0, ldb);
                    source.copy(target, target + to_b);
                }
                if (k == BK - 1) {
                    target = to + now;
                    now = (now + STAGE) & (RING - 1);
                }
                const int next = (k + 1) % BK;
#pragma unroll
                for (int j = 0; j < TN / 4; ++j)
                    b[j] = lowgemm::load_shared(from_b + now + next * B_PITCH +
                                                j * (Warp::LANES_N * 16));
                if (next % 4 == 0) {
#pragma unroll
                    for (int i = 0; i < TM; ++i)
                        a[i] = lowgemm::load_shared(from_a + now + i * (Warp::LANES_M * A_PITCH) +
                                                    next * 4);
                }
            }
        } while (--count);
    }

    finish(acc, tiles * BK, M, N, K, A, lda, B, ldb, C, ldc);
}
