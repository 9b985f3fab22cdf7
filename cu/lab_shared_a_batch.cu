// lab  a batch of products with one A: launches of their own, side by side, or one wide tile.
//
// Idea      C_b = A B_b, where each B_b has a few columns. A launch for each b reads A from DRAM
//           every time. The B_b stand side by side in one B: one launch reads A from DRAM once. With
//           a tile as wide as one B_b the blocks of a row of tiles still read A from L2, once for
//           each b; a tile as wide as all of them reads it once from there too.
// Tile      128 x BN x 32, thread TM x TN: 128 x 4 with 2 x 4, 128 x 32 with 8 x 4. The lanes of a
//           warp cover the tile's whole width.
// Shared    2 x (128 + BN) x 32 floats: 33 KiB, 40 KiB.
// Layout    A as it lies, four k-steps to a float4; the float4s of a row are permuted by xor with
//           the row, so that neighbouring rows meet in different banks without padding.
// Sizes     M a multiple of 128, N of BN, K of 32; rows that begin on 16 bytes.
// Check     Small whole numbers: every sum is exact in FP32.
#include "common.cuh"

constexpr int BM = 128, BK = 32, QUADS = BK / 4;

template <int BN, int TM, int TN>
struct Lanes {
    static constexpr int ALONG_N = BN / TN, ALONG_M = 32 / ALONG_N, WARP_ROWS = ALONG_M * TM;
    static_assert(ALONG_M % 4 == 0, "rows of a thread may differ in one bit of the permutation");
    static constexpr int THREADS = BM / WARP_ROWS * 32, COL_STEP = ALONG_N * 4;
};

__device__ __forceinline__ unsigned place(unsigned row, unsigned quad) {
    return row * BK + (quad ^ row % QUADS) * 4;
}

__device__ __forceinline__ void copy4_async(float* shared, const float* from) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

template <int BN, int THREADS>
__device__ __forceinline__ void copy_tile(float* As, float* Bs, const float* A, int lda,
                                          const float* B, int ldb) {
#pragma unroll
    for (unsigned at = threadIdx.x; at < BM * QUADS; at += THREADS) {
        const unsigned row = at / QUADS, quad = at % QUADS;
        copy4_async(As + place(row, quad), lowgemm::row_of(A, row, lda) + quad * 4);
    }
#pragma unroll
    for (unsigned at = threadIdx.x; at < BK * BN / 4; at += THREADS) {
        const unsigned k = at / (BN / 4), col = at % (BN / 4) * 4;
        copy4_async(Bs + k * BN + col, lowgemm::row_of(B, k, ldb) + col);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int BN, int TM, int TN>
__global__ void __launch_bounds__(Lanes<BN, TM, TN>::THREADS, 4)
    lab_shared_a_batch(LOWGEMM_GEMM_PARAMETERS) {
    using At = Lanes<BN, TM, TN>;
    __shared__ alignas(16) float As[2][BM * BK], Bs[2][BK * BN];
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const unsigned lane = threadIdx.x % 32;
    const unsigned row = threadIdx.x / 32 * At::WARP_ROWS + lane / At::ALONG_N;
    const unsigned col = lane % At::ALONG_N * 4;
    float acc[TM][TN] = {};

    A = lowgemm::row_of(A, origin.row, lda);
    B += origin.col;
    copy_tile<BN, At::THREADS>(As[0], Bs[0], A, lda, B, ldb);
    int current = 0;
#pragma unroll 1
    for (int k0 = 0; k0 < K; k0 += BK) {
        // ---- load: this tile has arrived for every thread, and all have left the other one
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        A += BK;
        B += static_cast<size_t>(BK) * ldb;
        if (k0 + BK < K)
            copy_tile<BN, At::THREADS>(As[current ^ 1], Bs[current ^ 1], A, lda, B, ldb);

        // ---- compute: four k-steps of A at a time, one of B
        float *a_of = As[current] + row * BK, *b_of = Bs[current] + col;
#pragma unroll 2
        for (unsigned quad = 0; quad < QUADS; ++quad) {
            // place(row + i ALONG_M, quad): adding 4 or 8 to the row flips one bit or none.
            const unsigned first = quad ^ row % QUADS;
            float a[TM][4];
#pragma unroll
            for (int i = 0; i < TM; ++i)
                lowgemm::as_float4(a[i][0]) = lowgemm::as_float4(
                    a_of[i * At::ALONG_M * BK + (first ^ i * At::ALONG_M % QUADS) * 4]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float column[TM], b[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    column[i] = a[i][k];
#pragma unroll
                for (int j = 0; j < TN; j += 4)
                    lowgemm::as_float4(b[j]) =
                        lowgemm::as_float4(b_of[(quad * 4 + k) * BN + j / 4 * At::COL_STEP]);
                lowgemm::outer_product(acc, column, b);
            }
        }
        current ^= 1;
    }

    // ---- store
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        float* out = C + static_cast<size_t>(origin.row + row + i * At::ALONG_M) * ldc + origin.col;
#pragma unroll
        for (int j = 0; j < TN; ++j)
            out[col + j / 4 * At::COL_STEP + j % 4] = acc[i][j];
    }
}
