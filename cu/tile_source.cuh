// Where a thread copies the k-tiles of A and B from, with cp.async and no address computed anew: two
// rows of A, half a tile apart, and a row of B. For 256 threads and BK = 8.
#pragma once
#include "common.cuh"

namespace lowgemm {

// Rows and columns outside are read from the last ones inside. The row of B is one copy of 16 bytes,
// or four of 4. Behind the copies of A by 16 bytes of a thread lie those of B: one address does.
template <bool Vec4, int Bm, int Bn>
struct TileSource {
    static constexpr int BK = 8, COPIES_B = Vec4 ? 1 : 4;
    static constexpr unsigned A_BYTES = Bm * BK * 4, B_PITCH = Bn * 4;
    static_assert(Bm == 256 && Bn == 128, "256 threads copy 256 x 8 of A and 8 x 128 of B");
    const float *a[2], *b[COPIES_B];

    // To the tiles that begin at an origin of C and at k.
    __device__ __forceinline__ void begin(Origin origin, unsigned k, LOWGEMM_GEMM_PARAMETERS) {
        const unsigned t = threadIdx.x;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned row = min(origin.row + t / 2 + half * (Bm / 2), M - 1u);
            a[half] = row_of(A, row, lda) + k + t % 2 * 4;
        }
#pragma unroll
        for (int j = 0; j < COPIES_B; ++j) {
            const unsigned col = origin.col + (Vec4 ? t % 32 * 4 : t % 32 + j * 32);
            b[j] = row_of(B, k + t / 32, ldb) + min(col, N - (Vec4 ? 4u : 1u));
        }
    }

    // Where in a stage the thread's copies of A begin, and how far behind them those of B.
    static __device__ __forceinline__ unsigned target() {
        return threadIdx.x * 16;
    }

    static __device__ __forceinline__ unsigned target_b() {
        const unsigned t = threadIdx.x;
        return A_BYTES + (Vec4 ? 0 : t / 32 * B_PITCH + t % 32 * 4 - t * 16);
    }

    __device__ __forceinline__ void copy(unsigned to_a, unsigned to_b) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const unsigned to = to_a + half * (A_BYTES / 2);
            if constexpr (Vec4) {
                copy_async<16>(to, a[half]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    copy_async<4>(to + j * 4, a[half] + j);
            }
        }
#pragma unroll
        for (int j = 0; j < COPIES_B; ++j)
            copy_async<Vec4 ? 16 : 4>(to_b + j * 128, b[j]);
        commit_copies();
    }

    // On by so many k-steps.
    __device__ __forceinline__ void advance(unsigned steps, unsigned ldb) {
        a[0] += steps, a[1] += steps;
        // IMAD.WIDE: ldb is 32 bits wide, so that a product and a sum are one instruction.
#pragma unroll
        for (int j = 0; j < COPIES_B; ++j)
            asm("mad.wide.u32 %0, %1, %2, %0;" : "+l"(b[j]) : "r"(4 * steps), "r"(ldb));
    }
};

}  // namespace lowgemm
