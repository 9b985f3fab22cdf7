// What several rungs share. Every rung computes C = A B, row-major, FP32:
//
//     M N K     A is M x K, B is K x N, C is M x N
//     lda ...   leading dimensions: the distance in elements between two rows
//     BM BN BK  the block tile: a block computes BM x BN of C, BK of the sum at a time
//     WM WN     the warp tile
//     TM TN     the thread tile
//
// Offsets of elements are 64-bit: row * lda passes 2^31 long before the memory of a GPU ends.
#pragma once

#define LOWGEMM_GEMM_PARAMETERS                                                             \
    int M, int N, int K, const float *__restrict__ A, int lda, const float *__restrict__ B, \
        int ldb, float *__restrict__ C, int ldc

// Tile sizes are macros in the rungs (BM, TM, ...), so the templates here spell them Bm, Tm, ...
namespace lowgemm {

// The first row and column of C that the block computes. The grid is one-dimensional, because
// gridDim.x reaches 2^31 - 1 and gridDim.y only 65535: a tall C would not fit.
struct Origin {
    unsigned row, col;
};

template <int Bm, int Bn>
__device__ __forceinline__ Origin block_origin(unsigned N) {
    const unsigned blocks_along_n = (N + Bn - 1) / Bn;
    return {blockIdx.x / blocks_along_n * Bm, blockIdx.x % blocks_along_n * Bn};
}

__device__ __forceinline__ const float* row_of(const float* matrix, unsigned row, unsigned ld) {
    return matrix + static_cast<size_t>(row) * ld;
}

// Four neighbours in a row of `cols` elements, zeros outside. Vec4 promises that the row starts on
// a 16-byte boundary and that cols is a multiple of 4, so that four are wholly inside or outside.
template <bool Vec4>
__device__ __forceinline__ float4 load4_or_zero(const float* row, unsigned col, unsigned cols,
                                                bool inside) {
    float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
    if constexpr (Vec4) {
        if (inside && col < cols) v = *reinterpret_cast<const float4*>(row + col);
    } else {
        if (inside && col + 0 < cols) v.x = row[col + 0];
        if (inside && col + 1 < cols) v.y = row[col + 1];
        if (inside && col + 2 < cols) v.z = row[col + 2];
        if (inside && col + 3 < cols) v.w = row[col + 3];
    }
    return v;
}

// The same without a predicate: what lies outside is read from the last column instead. For tiles
// whose surplus rows, columns or k-steps are never used, this keeps the loop free of branches.
template <bool Vec4>
__device__ __forceinline__ float4 load4_clamped(const float* row, unsigned col, unsigned cols) {
    if constexpr (Vec4) {
        return *reinterpret_cast<const float4*>(row + min(col, cols - 4));
    } else {
        return {row[min(col + 0, cols - 1)], row[min(col + 1, cols - 1)],
                row[min(col + 2, cols - 1)], row[min(col + 3, cols - 1)]};
    }
}

__device__ __forceinline__ float4& as_float4(float& first) {
    return reinterpret_cast<float4&>(first);
}

// acc += a b^T: TM x TN multiply-adds from TM + TN operands.
template <int Tm, int Tn>
__device__ __forceinline__ void outer_product(float (&acc)[Tm][Tn], const float (&a)[Tm],
                                              const float (&b)[Tn]) {
#pragma unroll
    for (int i = 0; i < Tm; ++i) {
#pragma unroll
        for (int j = 0; j < Tn; ++j)
            acc[i][j] += a[i] * b[j];
    }
}

// The warp tile of ex8 to ex10: 4 x 8 lanes, each with a TM x TN thread tile that is cut into
// quads of four neighbours. Quads of one index lie side by side over the lanes, so that eight
// lanes which read float4 read 128 contiguous bytes (or all the same 16): no bank conflict.
template <int Wm, int Wn, int Tm, int Tn, int WARPS_N>
struct WarpTile {
    static constexpr int LANES_M = 4, LANES_N = 8;
    static_assert(Wm == LANES_M * Tm && Wn == LANES_N * Tn, "4 x 8 lanes must cover the warp tile");
    static_assert(Tm % 4 == 0 && Tn % 4 == 0, "fragments are read as float4: TM and TN in fours");
    unsigned row, col;  // of this lane's first quad in the block tile

    __device__ __forceinline__ explicit WarpTile(unsigned thread) {
        const unsigned warp = thread / 32, lane = thread % 32;
        row = warp / WARPS_N * Wm + lane / LANES_N * 4;
        col = warp % WARPS_N * Wn + lane % LANES_N * 4;
    }

    __device__ __forceinline__ unsigned row_of_quad(int quad) const {
        return row + quad * (4 * LANES_M);
    }

    __device__ __forceinline__ unsigned col_of_quad(int quad) const {
        return col + quad * (4 * LANES_N);
    }

    // Scalar stores on purpose: four accumulators that leave as one float4 must sit in neighbouring
    // registers, which costs register-bank conflicts in the main loop.
    __device__ __forceinline__ void store(const float (&acc)[Tm][Tn], float* C, int ldc,
                                          Origin origin, unsigned M, unsigned N) const {
#pragma unroll
        for (int i = 0; i < Tm; ++i) {
            const unsigned r = origin.row + row_of_quad(i / 4) + i % 4;
            float* out = C + static_cast<size_t>(r) * ldc;
#pragma unroll
            for (int j = 0; j < Tn; ++j) {
                const unsigned c = origin.col + col_of_quad(j / 4) + j % 4;
                if (r < M && c < N) out[c] = acc[i][j];
            }
        }
    }
};

// A k-tile on its way from global memory through registers to shared memory: As[k][row] (A
// transposed, so that a thread's rows are neighbours) and Bs[k][col].
//
// Surplus rows, columns and k-steps are read from the last valid place. They reach only elements of
// C that are not stored, or k-steps that the last, partial tile does not compute.
template <bool Vec4, int Bm, int Bn, int Bk, int THREADS>
struct Prefetch {
    static constexpr int A_LOADS = Bm * Bk / 4 / THREADS, B_LOADS = Bn * Bk / 4 / THREADS;
    static_assert(Bk % 4 == 0 && Bn % 4 == 0, "tiles are loaded as float4: BK and BN in fours");
    static_assert(A_LOADS * THREADS * 4 == Bm * Bk, "BM x BK must be a multiple of 4 x threads");
    static_assert(B_LOADS * THREADS * 4 == Bn * Bk, "BN x BK must be a multiple of 4 x threads");
    static_assert(Bm % 32 == 0, "rows of As must be whole sets of 32 banks: BM in thirty-twos");
    float4 a[A_LOADS], b[B_LOADS];

    // Transposing, a warp writes float4s from 16 rows at two places along k into rows of As that are
    // a multiple of 32 banks apart: the second place moves 16 rows on, into the other 16 banks.
    static __device__ __forceinline__ unsigned swizzle(unsigned k) {
        return k / 4 % 2 * 16;
    }

    __device__ __forceinline__ void load(unsigned thread, Origin origin, unsigned k0,
                                         LOWGEMM_GEMM_PARAMETERS) {
        constexpr int A_COLS = Bk / 4, B_COLS = Bn / 4;
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const unsigned at = thread + i * THREADS;
            const unsigned row = min(origin.row + at / A_COLS, M - 1u);
            a[i] = load4_clamped<Vec4>(row_of(A, row, lda), k0 + at % A_COLS * 4, K);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const unsigned at = thread + i * THREADS;
            const unsigned k = min(k0 + at / B_COLS, K - 1u);
            b[i] = load4_clamped<Vec4>(row_of(B, k, ldb), origin.col + at % B_COLS * 4, N);
        }
    }

    __device__ __forceinline__ void store(unsigned thread, float (&As)[Bk][Bm],
                                          float (&Bs)[Bk][Bn]) const {
        constexpr int A_COLS = Bk / 4, B_COLS = Bn / 4;
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const unsigned at = thread + i * THREADS, k = at % A_COLS * 4;
            const unsigned row = at / A_COLS ^ swizzle(k);
            As[k + 0][row] = a[i].x;
            As[k + 1][row] = a[i].y;
            As[k + 2][row] = a[i].z;
            As[k + 3][row] = a[i].w;
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const unsigned at = thread + i * THREADS;
            as_float4(Bs[at / B_COLS][at % B_COLS * 4]) = b[i];
        }
    }
};

// One k-step's operands of a thread.
template <int Tm, int Tn>
struct Fragment {
    float a[Tm], b[Tn];

    template <class Warp, int A_PITCH, int B_PITCH>
    __device__ __forceinline__ void load(const Warp& warp, const float (&As_k)[A_PITCH],
                                         const float (&Bs_k)[B_PITCH], unsigned swizzle) {
#pragma unroll
        for (int i = 0; i < Tm; i += 4)
            as_float4(a[i]) =
                *reinterpret_cast<const float4*>(&As_k[warp.row_of_quad(i / 4) ^ swizzle]);
#pragma unroll
        for (int j = 0; j < Tn; j += 4)
            as_float4(b[j]) = *reinterpret_cast<const float4*>(&Bs_k[warp.col_of_quad(j / 4)]);
    }
};

}  // namespace lowgemm
