// lab  warp tile: which rows and columns the 32 lanes of a warp take.
//
// Idea      Shared memory delivers to a warp, not to a lane: what an LDS costs depends on which
//           lanes read the same address. Here a table says where each thread's rows and columns
//           begin, so the machine code is the same for every arrangement of the lanes.
// Tile      16 TM x 256 x 8, thread TM x 8, 512 threads: 16 warps cover it in each arrangement.
// Shared    (16 TM + 256) x 8 floats = 12 KiB (TM = 8) or 9 KiB (TM = 2), loaded once.
// Expected  A k-step of the SM's 16 warps. TM = 8: 256 cycles of FFMA on 128 lanes; 192 wavefronts,
//           128 in z order, 320 where a lane's columns lie side by side. TM = 2: 64 cycles of FFMA
//           against 144, 80, 272 wavefronts.
// Check     The sums over all rounds are whole numbers, exact in FP32.
//
// expect: registers <= 128; spill_store_bytes == 0; spill_load_bytes == 0
// expect lab_warp_tile<8>: hot_loop.FFMA == 512; hot_loop.LDS.128 == 32; hot_loop.LDS == 32
// expect lab_warp_tile<2>: hot_loop.FFMA == 128; hot_loop.LDS.128 == 16; hot_loop.LDS.64 == 8
#include "common.cuh"
#include "lab_vectors.cuh"

constexpr int BN = 256, BK = 8, TN = 8, THREADS = 512;

// Neighbours along M that a thread reads as one vector.
template <int TM>
struct Rows {
    using Vector = float4;
};
template <>
struct Rows<2> {
    using Vector = float2;
};

// A: BK x 16 TM, k-major. B: BK x BN. place: for each thread the first rows of its two vectors of
// rows (of its one, twice, for TM = 2), then the first columns of its two quads of columns.
// C: a 16 TM x BN tile a block, rounds times A^T B.
template <int TM>
__global__ void __launch_bounds__(THREADS, TM == 8 ? 1 : 2)
    lab_warp_tile(const float* __restrict__ A, const float* __restrict__ B,
                  const int4* __restrict__ place, float* __restrict__ C, int rounds) {
    using Vector = typename Rows<TM>::Vector;
    constexpr int BM = 16 * TM, WIDE = sizeof(Vector) / sizeof(float);
    __shared__ alignas(16) float As[BK][BM], Bs[BK][BN];

    // ---- load
#pragma unroll 1
    for (int i = threadIdx.x; i < BK * BM; i += THREADS)
        As[i / BM][i % BM] = A[i];
#pragma unroll 1
    for (int i = threadIdx.x; i < BK * BN; i += THREADS)
        Bs[i / BN][i % BN] = B[i];
    const int4 at = place[threadIdx.x];
    const int row[2] = {at.x, at.y}, col[2] = {at.z, at.w};
    __syncthreads();

    // ---- compute
    float acc[TM][TN] = {};
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; i += WIDE)
                lowgemm::load_again(reinterpret_cast<Vector&>(a[i]), &As[k][row[i / WIDE]]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                lowgemm::load_again(lowgemm::as_float4(b[j]), &Bs[k][col[j / 4]]);
            lowgemm::outer_product(acc, a, b);
        }
    }

    // ---- store
    C += static_cast<size_t>(blockIdx.x) * BM * BN;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j)
            C[(row[i / WIDE] + i % WIDE) * BN + col[j / 4] + j % 4] = acc[i][j];
    }
}
