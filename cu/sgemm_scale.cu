// SGEMM  without a product: C = beta C, where alpha is 0 or the sum has no terms.
//
// Idea      A thread, an element. BLAS reads neither A nor B then, and no C where beta is 0: what is
//           not read may be NaN.
// Tile      None: a grid that strides over all elements.
// Shared    None.
// Expected  DRAM bandwidth.
#include "sgemm.cuh"

using namespace lowgemm;

extern "C" __global__ void __launch_bounds__(256) sgemm_scale(const Sgemm g) {
    // ---- load, compute, store
    const size_t in_batch = static_cast<size_t>(g.m) * g.n, all = in_batch * g.batches;
    const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < all;
         i += step) {
        const size_t at = i % in_batch;
        float* c = g.c + i / in_batch * g.c_batch + at / g.n * g.c_row + at % g.n * g.c_col;
        *c = g.beta != 0.0f ? g.beta * *c : 0.0f;
    }
}
