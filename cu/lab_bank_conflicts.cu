// lab  bank conflicts: one tile, six layouts.
//
// Idea      A block stores a tile of 32 rows x 32 k row by row, as it comes from a row-major matrix,
//           and reads it column by column, as an outer product wants it. Shared memory has 32 banks
//           of 4 bytes; how the tile lies in them decides how many passes (wavefronts) that takes.
// Layouts   0  plain        pitch 32: a column lies in one bank.
//           1  padded       pitch 33: neighbouring rows are one bank apart; no float4 any more.
//           2  padded by 4  pitch 36: float4 stays aligned; rows are four banks apart.
//           3  transposed   k-major, stored as the data comes: the conflict moves to the store.
//           4  transposed   k-major, and a warp stores 32 rows of one k: none left.
//           5  swizzled     column k of row m lies at k xor m: no padding, no conflict.
// Check     The sums over all rounds are whole numbers, exact in FP32.
constexpr int SIDE = 32, THREADS = 256;
constexpr int PLAIN = 0, PADDED = 1, PADDED_BY_4 = 2, TRANSPOSED = 3, BY_ROWS = 4, SWIZZLED = 5;

template <int LAYOUT>
__device__ __forceinline__ int place(int row, int k) {
    if constexpr (LAYOUT == PADDED) return row * (SIDE + 1) + k;
    if constexpr (LAYOUT == PADDED_BY_4) return row * (SIDE + 4) + k;
    if constexpr (LAYOUT == TRANSPOSED || LAYOUT == BY_ROWS) return k * SIDE + row;
    if constexpr (LAYOUT == SWIZZLED) return row * SIDE + (k ^ row);
    return row * SIDE + k;
}

// in: 32 x 32, row-major. out: one 32 x 32 a block, the sum of (in + round) over the rounds.
template <int LAYOUT>
__global__ void __launch_bounds__(THREADS)
    lab_bank_conflicts(const float* __restrict__ in, float* __restrict__ out, int rounds) {
    __shared__ alignas(16) float tile[SIDE * (SIDE + 4)];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Four neighbours along k: eight threads a row, or a row a lane.
    const int row = LAYOUT == BY_ROWS ? lane : threadIdx.x / 8;
    const int k = LAYOUT == BY_ROWS ? warp * 4 : threadIdx.x % 8 * 4;
    float4 v = *reinterpret_cast<const float4*>(in + row * SIDE + k);
    float sum[4] = {};

#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        // ---- store
        if constexpr (LAYOUT == PLAIN || LAYOUT == PADDED_BY_4) {
            *reinterpret_cast<float4*>(tile + place<LAYOUT>(row, k)) = v;
        } else {
            tile[place<LAYOUT>(row, k + 0)] = v.x;
            tile[place<LAYOUT>(row, k + 1)] = v.y;
            tile[place<LAYOUT>(row, k + 2)] = v.z;
            tile[place<LAYOUT>(row, k + 3)] = v.w;
        }
        __syncthreads();

        // ---- load: a warp reads four columns, a row a lane; neighbours would merge into LDS.128
#pragma unroll
        for (int i = 0; i < 4; ++i)
            sum[i] += tile[place<LAYOUT>(lane, warp + 8 * i)];
        __syncthreads();
        v = {v.x + 1.0f, v.y + 1.0f, v.z + 1.0f, v.w + 1.0f};
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
        out[blockIdx.x * SIDE * SIDE + lane * SIDE + warp + 8 * i] = sum[i];
}
