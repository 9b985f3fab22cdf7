// What the kernels of sgemm() share: C = alpha A B + beta C for any strides, batch by batch.
//
// Every matrix has two strides in elements, and a third from one of a batch to the next. Where
// along C is contiguous is settled before a launch: a column-major C is the row-major transpose,
// with A and B swapped. How A and B are contiguous, and how they can be copied, is a template
// parameter of the kernels.
#pragma once
#include "common.cuh"

namespace lowgemm {

struct Sgemm {
    float* c;
    const float* a;
    const float* b;
    float4* partial;  // sums that another block adds to its own
    unsigned* flags;  // zeros, and zeros again afterwards
    long long a_row, a_col, a_batch, b_row, b_col, b_batch, c_row, c_col, c_batch;
    int m, n, k, batches;
    int splits;    // blocks that share the sum of a tile
    int vector_c;  // whether four neighbours in a row of C are an aligned float4
    float alpha, beta;
};

// How an operand is copied. K: neighbours along k are neighbours in memory; X: those along m (of A)
// or n (of B). 16 or 4 bytes at a time; 16 needs aligned rows, and whole fours along X. ANY: 4 bytes
// at any two strides.
enum Kind { K16, K4, X16, X4, ANY };

__host__ __device__ constexpr bool along_k(int kind) {
    return kind == K16 || kind == K4;
}

__host__ __device__ constexpr bool by_16_bytes(int kind) {
    return kind == K16 || kind == X16;
}

// Zeros where nothing is to be read.
template <int BYTES>
__device__ __forceinline__ void copy_async_or_zero(unsigned shared, const float* global,
                                                   bool inside) {
    const unsigned bytes = inside ? BYTES : 0;
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(global),
                     "r"(bytes)
                     : "memory");
}

// C = alpha sum + beta C for four neighbours in a row, those before column `first` and behind the
// last left out; BLAS reads no C where beta is 0. A vector is wholly in or out.
__device__ __forceinline__ void store4(const Sgemm& g, float* c, float4 sum, unsigned row,
                                       unsigned col, unsigned first = 0) {
    const unsigned n = g.n;
    float* out = c + row * g.c_row + col * g.c_col;
    float4 v = {g.alpha * sum.x, g.alpha * sum.y, g.alpha * sum.z, g.alpha * sum.w};
    if (g.vector_c) {
        if (col < first || col >= n) return;
        if (g.beta != 0.0f) {
            const float4 old = as_float4(*out);
            v.x = fmaf(g.beta, old.x, v.x), v.y = fmaf(g.beta, old.y, v.y);
            v.z = fmaf(g.beta, old.z, v.z), v.w = fmaf(g.beta, old.w, v.w);
        }
        as_float4(*out) = v;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (col + i < first || col + i >= n) continue;
        float* at = out + i * g.c_col;
        *at = g.beta != 0.0f ? fmaf(g.beta, *at, (&v.x)[i]) : (&v.x)[i];
    }
}

// Whether this block is the last of `blocks` that reach this point with this counter. What the
// others have written before is visible to it. The counter is left at zero.
__device__ __forceinline__ bool is_last_block(unsigned* counter, unsigned blocks) {
    __shared__ unsigned arrived;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        arrived = atomicAdd(counter, 1u);
        if (arrived == blocks - 1) *counter = 0;
    }
    __syncthreads();
    const bool last = arrived == blocks - 1;
    if (last) __threadfence();
    return last;
}

}  // namespace lowgemm
