// lab  bank camping: a matrix walked down its columns, for any pitch.
//
// Idea      With rows a power of two apart, the pieces of one column have the same low address bits.
//           Were channels and slices dealt out by those bits alone, all pieces would come from one
//           of them. All warps of the GPU walk down the same column strip together, 128 bytes a
//           row and eight rows in flight each; only the pitch differs.
// Walk      Units of 8 rows x 32 columns, numbered down the first strip, then down the second: warp w
//           takes the units w, w + W, w + 2 W, ... of W warps, in each of the passes.
// Loads     Past L1 (.cg): what is read again comes from L2.
// Sizes     A power of two of groups of 8 rows, at least 1.
// Check     Small whole numbers: every thread's sum is exact in FP32.
constexpr int THREADS = 256, WARPS = THREADS / 32, ROWS = 8;

__global__ void __launch_bounds__(THREADS)
    lab_bank_camping(const float* __restrict__ A, int pitch, int log2_groups, int strips,
                     int passes, float* __restrict__ out) {
    const unsigned lane = threadIdx.x % 32, warps = gridDim.x * WARPS;
    const unsigned warp = blockIdx.x * WARPS + threadIdx.x / 32;
    const unsigned groups = 1u << log2_groups, units = groups * strips;
    float sum = 0.0f;

#pragma unroll 1
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 1
        for (unsigned unit = warp; unit < units; unit += warps) {
            const size_t row = (unit & (groups - 1)) * ROWS, strip = unit >> log2_groups;
            const float* from = A + row * pitch + strip * 32 + lane;
            float v[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                v[r] = __ldcg(from + static_cast<size_t>(r) * pitch);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                sum += v[r];
        }
    }
    out[warp * 32 + lane] = sum;
}
