// lab  rasterisation: the order in which blocks take the tiles of C.
//
// Idea      The blocks that run at once (a wave) need the rows of A and the columns of B of their
//           tiles; what several of them need comes from DRAM once. A row of tiles shares one panel of
//           A and no panel of B; a square of tiles shares both. The main loop is ex9's, unchanged.
// Orders    0  rows        along N first: a wave is about a row of tiles.
//           1  columns     along M first.
//           2  grouped     8 rows of tiles at a time, column by column within them.
//           3  squares     16 x 16 tiles at a time.
//           4  no sharing  along the diagonals: no two blocks of a wave share a row or a column.
// Kernels   lab_rasterisation multiplies; lab_rasterisation_loads reads the same panels in the same
//           order and only sums them, so that its time is that of the memory.
// Check     With whole numbers every sum is exact in FP32.
#include "ex9_double_buffer.cu"

constexpr int ROWS = 0, COLUMNS = 1, GROUPED = 2, SQUARES = 3, NO_SHARING = 4;
constexpr unsigned GROUP = 8, SIDE = 16;

// The tile of a block, in tiles. tiles_m and tiles_n are multiples of 16, for NO_SHARING equal.
template <int ORDER>
__device__ __forceinline__ lowgemm::Origin tile_of(unsigned block, unsigned tiles_m,
                                                   unsigned tiles_n) {
    if constexpr (ORDER == COLUMNS) return {block % tiles_m, block / tiles_m};
    if constexpr (ORDER == GROUPED) {
        const unsigned group = block / (GROUP * tiles_n), within = block % (GROUP * tiles_n);
        return {group * GROUP + within % GROUP, within / GROUP};
    }
    if constexpr (ORDER == SQUARES) {
        const unsigned square = block / (SIDE * SIDE), within = block % (SIDE * SIDE);
        const unsigned squares_n = tiles_n / SIDE;
        return {square / squares_n * SIDE + within / SIDE,
                square % squares_n * SIDE + within % SIDE};
    }
    if constexpr (ORDER == NO_SHARING)
        return {block % tiles_m, (block + block / tiles_m) % tiles_m};
    return {block / tiles_n, block % tiles_n};
}

template <int ORDER>
__device__ __forceinline__ lowgemm::Origin origin_of(unsigned M, unsigned N) {
    const auto tile = tile_of<ORDER>(blockIdx.x, M / BM, N / BN);
    return {tile.row * BM, tile.col * BN};
}

template <int ORDER>
__global__ void __launch_bounds__(THREADS, 2) lab_rasterisation(LOWGEMM_GEMM_PARAMETERS) {
    ex9_block<true>(origin_of<ORDER>(M, N), M, N, K, A, lda, B, ldb, C, ldc);
}

// C takes a sum for each warp of each block: row-major by tiles, THREADS / 32 a tile. K: a multiple
// of STEP.
constexpr int STEP = 32;
template <int ORDER>
__global__ void __launch_bounds__(THREADS, 2) lab_rasterisation_loads(LOWGEMM_GEMM_PARAMETERS) {
    const auto origin = origin_of<ORDER>(M, N);
    lowgemm::Prefetch<true, BM, BN, STEP, THREADS> tile;
    float sum = 0.0f;

    // ---- load: whole 128-byte lines, eight float4 a thread under way at once
#pragma unroll 1
    for (int k0 = 0; k0 < K; k0 += STEP) {
        tile.load(threadIdx.x, origin, k0, M, N, K, A, lda, B, ldb, C, ldc);
#pragma unroll
        for (const float4& v : tile.a)
            sum += (v.x + v.y) + (v.z + v.w);
#pragma unroll
        for (const float4& v : tile.b)
            sum += (v.x + v.y) + (v.z + v.w);
    }

    // ---- store
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    const unsigned place = origin.row / BM * (N / BN) + origin.col / BN;
    if (threadIdx.x % 32 == 0) C[place * (THREADS / 32) + threadIdx.x / 32] = sum;
}
