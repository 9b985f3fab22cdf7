// SGEMM  one column: y = alpha A x + beta y, bound by the memory that A is read from.
//
// Idea      A is read once, x again and again from the caches. Where A is contiguous along k, a warp
//           has a row (or the warps of a block share it), and its lanes add up at the end; where it is contiguous along m, a lane has
//           four rows, and the warps of a block take turns along k and add up in shared memory.
//           Where rows are few, `splits` blocks share a sum; the last one adds in a fixed order.
// Tile      8 rows or one; along m 128.
// Shared    Along m, a float for each row and warp.
// Expected  DRAM or L2 bandwidth: half a floating-point operation a byte.
#include "sgemm.cuh"

using namespace lowgemm;

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int UNROLL = 4;

template <int WIDTH>
struct Vector {
    float v[WIDTH];
};

template <int WIDTH>
__device__ __forceinline__ Vector<WIDTH> load_vector(const float* from) {
    Vector<WIDTH> r;
    if constexpr (WIDTH == 4) {
        const float4 v = __ldg(reinterpret_cast<const float4*>(from));
        r.v[0] = v.x, r.v[1] = v.y, r.v[2] = v.z, r.v[3] = v.w;
    } else {
        r.v[0] = __ldg(from);
    }
    return r;
}

// The part of the sum that a block has, in whole steps of `unit` but for the end.
struct Part {
    unsigned tile, split, begin, end;

    __device__ __forceinline__ Part(const Sgemm& g, unsigned unit)
        : tile(blockIdx.x / g.splits), split(blockIdx.x % g.splits) {
        const unsigned units = (static_cast<unsigned>(g.k) + unit - 1) / unit;
        const unsigned share = units / g.splits, extra = units % g.splits;
        begin = (split * share + min(split, extra)) * unit;
        end = min(begin + (share + (split < extra)) * unit, static_cast<unsigned>(g.k));
    }
};

// Store row `index` of the ROWS of this block, held by the threads for which `holds`.
template <int ROWS>
__device__ __forceinline__ void finish(const Sgemm& g, const Part& part, float sum, unsigned index,
                                       bool holds, float* c, unsigned row) {
    if (g.splits > 1) {
        float* partial = reinterpret_cast<float*>(g.partial) +
                         static_cast<size_t>(part.tile) * g.splits * ROWS + index;
        if (holds) partial[part.split * ROWS] = sum;
        if (!is_last_block(g.flags + part.tile, g.splits)) return;
        if (holds) {
            sum = __ldcg(partial);
            for (int s = 1; s < g.splits; ++s)
                sum += __ldcg(partial + s * ROWS);
        }
    }
    if (holds && row < static_cast<unsigned>(g.m)) {
        float* out = c + row * g.c_row;
        *out = g.beta != 0.0f ? fmaf(g.beta, *out, g.alpha * sum) : g.alpha * sum;
    }
}

// A contiguous along k, WIDTH floats at a time; x too, where X_WIDTH says so. ROWS rows a block:
// each has 8 / ROWS warps.
template <int WIDTH, int X_WIDTH, int ROWS>
__global__ void __launch_bounds__(THREADS) sgemm_gemv_k(const Sgemm g) {
    constexpr int EACH = WARPS / ROWS, STEP = 32 * EACH * WIDTH;
    const unsigned lane = threadIdx.x % (32 * EACH), index = threadIdx.x / (32 * EACH);
    const Part part(g, STEP);
    const unsigned tiles = (g.m + ROWS - 1) / ROWS;
    const size_t batch = part.tile / tiles;
    const unsigned row = part.tile % tiles * ROWS + index;
    const float* a = g.a + batch * g.a_batch + min(row, g.m - 1u) * g.a_row;
    const float* x = g.b + batch * g.b_batch;

    // ---- load, compute
    float sums[WIDTH] = {};
    auto add = [&](unsigned k) {
        const Vector<WIDTH> from_a = load_vector<WIDTH>(a + k);
        if constexpr (X_WIDTH == WIDTH) {
            const Vector<WIDTH> from_x = load_vector<WIDTH>(x + k);
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                sums[i] = fmaf(from_a.v[i], from_x.v[i], sums[i]);
        } else {
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                sums[i] = fmaf(from_a.v[i], __ldg(x + (k + i) * g.b_row), sums[i]);
        }
    };
    unsigned k = part.begin + lane * WIDTH;
    for (; k + (UNROLL - 1) * STEP + WIDTH <= part.end; k += UNROLL * STEP) {
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            add(k + i * STEP);
    }
    for (; k + WIDTH <= part.end; k += STEP)
        add(k);
    for (; k < part.end; ++k)  // less than a vector: one lane has it
        sums[0] = fmaf(__ldg(a + k), __ldg(x + k * g.b_row), sums[0]);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i)
        sum += sums[i];
#pragma unroll
    for (int distance = 16; distance; distance /= 2)
        sum += __shfl_xor_sync(~0u, sum, distance);
    if constexpr (EACH > 1) {
        // Aligned: the words beside it are not read with it.
        __shared__ __align__(16) float shared[WARPS];
        if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
#pragma unroll
        for (int w = 0; w < EACH; ++w)
            sum += shared[index * EACH + w];
    }
    // ---- store
    finish<ROWS>(g, part, sum, index, lane == 0, g.c + batch * g.c_batch, row);
}

// A contiguous along m: four rows a lane, neighbours for a WIDTH of 4.
template <int WIDTH>
__global__ void __launch_bounds__(THREADS) sgemm_gemv_m(const Sgemm g) {
    constexpr int EACH = 4, ROWS = 32 * EACH;
    __shared__ float shared[WARPS][ROWS];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Part part(g, WARPS);
    const unsigned tiles = (g.m + ROWS - 1) / ROWS;
    const size_t batch = part.tile / tiles;
    const unsigned m0 = part.tile % tiles * ROWS;
    const float* a = g.a + batch * g.a_batch;
    const float* x = g.b + batch * g.b_batch;
    // Of the rows beyond the last one nothing is stored.
    unsigned rows[EACH / WIDTH];
#pragma unroll
    for (int i = 0; i < EACH / WIDTH; ++i)
        rows[i] = min(m0 + lane * WIDTH + i * 32, g.m - static_cast<unsigned>(WIDTH));

    // ---- load, compute
    float sums[EACH] = {};
    unsigned k = part.begin + warp;
    auto add = [&](unsigned at) {
        const float from_x = __ldg(x + at * g.b_row);
#pragma unroll
        for (int i = 0; i < EACH / WIDTH; ++i) {
            const Vector<WIDTH> from_a = load_vector<WIDTH>(a + at * g.a_col + rows[i]);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                sums[i + j] = fmaf(from_a.v[j], from_x, sums[i + j]);
        }
    };
    for (; k + (2 * UNROLL - 1) * WARPS < part.end; k += 2 * UNROLL * WARPS) {
#pragma unroll
        for (int i = 0; i < 2 * UNROLL; ++i)
            add(k + i * WARPS);
    }
    for (; k < part.end; k += WARPS)
        add(k);
#pragma unroll
    for (int i = 0; i < EACH; ++i)
        shared[warp][WIDTH == 1 ? lane + i * 32 : lane * WIDTH + i] = sums[i];
    __syncthreads();
    // ---- store
    const bool holds = threadIdx.x < ROWS;
    float sum = 0.0f;
    if (holds)
#pragma unroll
        for (int w = 0; w < WARPS; ++w)
            sum += shared[w][threadIdx.x];
    finish<ROWS>(g, part, sum, threadIdx.x, holds, g.c + batch * g.c_batch, m0 + threadIdx.x);
}
