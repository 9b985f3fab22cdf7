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

template <int BYTES>
__device__ __forceinline__ void copy_async(unsigned shared, const float* global) {
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global)
                     : "memory");
}

__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four neighbours of a row, from the last valid columns where the row ends: surplus elements are
// never used. One 16-byte copy where the row allows it (Vec4), else four of 4 bytes.
template <bool Vec4>
__device__ __forceinline__ void copy4_clamped_async(float& shared, const float* row, unsigned col,
                                                    unsigned cols) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&shared));
    if constexpr (Vec4) {
        copy_async<16>(to, row + min(col, cols - 4));
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
            copy_async<4>(to + 4 * j, row + min(col + j, cols - 1));
    }
}

// A k-tile on its way past the registers, of A as it lies in memory: As[row][k] and Bs[k][col].
// What lies outside is read from the last valid place.
template <bool Vec4, int THREADS, int Bm, int Bn, int Bk, int A_PITCH>
__device__ __forceinline__ void copy_tile_async(float (&As)[Bm][A_PITCH], float (&Bs)[Bk][Bn],
                                                Origin origin, unsigned k0,
                                                LOWGEMM_GEMM_PARAMETERS) {
    static_assert(Bk % 4 == 0 && Bm * Bk % (4 * THREADS) == 0,
                  "BM x BK: a multiple of 4 x threads");
    static_assert(Bn % 4 == 0 && Bn * Bk % (4 * THREADS) == 0,
                  "BN x BK: a multiple of 4 x threads");
#pragma unroll
    for (int i = 0; i < Bm * Bk / 4 / THREADS; ++i) {
        const unsigned at = threadIdx.x + i * THREADS, row = at / (Bk / 4), k = at % (Bk / 4) * 4;
        const float* from = row_of(A, min(origin.row + row, M - 1u), lda);
        copy4_clamped_async<Vec4>(As[row][k], from, k0 + k, K);
    }
#pragma unroll
    for (int i = 0; i < Bn * Bk / 4 / THREADS; ++i) {
        const unsigned at = threadIdx.x + i * THREADS, k = at / (Bn / 4), col = at % (Bn / 4) * 4;
        const float* from = row_of(B, min(k0 + k, K - 1u), ldb);
        copy4_clamped_async<Vec4>(Bs[k][col], from, origin.col + col, N);
    }
    commit_copies();
}

// Volatile: the compiler keeps the order of loads and barriers.
__device__ __forceinline__ float4 load_shared(unsigned at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at));
    return v;
}

// Lanes in "z" order: bit 0 moves along N only, bit 1 along M only. Lanes n and n^1 read one address
// of A, n and n^2 one of B, and an LDS.128 takes two wavefronts instead of four.
struct ZOrder {
    static constexpr int LANES_M = 8, LANES_N = 4;
    unsigned m, n;

    __device__ __forceinline__ explicit ZOrder(unsigned lane)
        : m((lane >> 1 & 1) | (lane >> 2 & 6)), n((lane & 1) | (lane >> 1 & 2)) {}
};

// The warp tile of ex11 and ex12: 8 x 4 lanes in z order. A lane's rows are 8 apart, which suits an A
// that lies as in memory; its columns are quads of four neighbours, side by side over the lanes.
template <int Wm, int Wn, int Tm, int Tn, int WARPS_N>
struct ZWarpTile {
    static constexpr int LANES_M = ZOrder::LANES_M, LANES_N = ZOrder::LANES_N;
    static_assert(Wm == LANES_M * Tm && Wn == LANES_N * Tn, "8 x 4 lanes must cover the warp tile");
    static_assert(Tn % 4 == 0, "columns are read as float4: TN in fours");
    unsigned row, col;  // of this lane's first element in the block tile

    __device__ __forceinline__ explicit ZWarpTile(unsigned thread) {
        const unsigned warp = thread / 32;
        const ZOrder lane(thread % 32);
        row = warp / WARPS_N * Wm + lane.m;
        col = warp % WARPS_N * Wn + lane.n * 4;
    }

    __device__ __forceinline__ unsigned row_of(int i) const {
        return row + i * LANES_M;
    }

    __device__ __forceinline__ unsigned col_of(int j) const {
        return col + j / 4 * (4 * LANES_N) + j % 4;
    }

    // Scalar stores, as in WarpTile. The end of a row of C is a number of its own for each row, 0
    // below C: predicates of 16 columns that hold for all rows would be more than there are.
    __device__ __forceinline__ void store(const float (&acc)[Tm][Tn], float* C, int ldc,
                                          Origin origin, unsigned M, unsigned N) const {
#pragma unroll
        for (int i = 0; i < Tm; ++i) {
            const unsigned r = origin.row + row_of(i);
            float* out = C + static_cast<size_t>(r) * ldc;
            unsigned end = r < M ? N : 0;
            asm volatile("" : "+r"(end));
#pragma unroll
            for (int j = 0; j < Tn; ++j) {
                const unsigned c = origin.col + col_of(j);
                if (c < end) out[c] = acc[i][j];
            }
        }
    }
};

}  // namespace lowgemm
