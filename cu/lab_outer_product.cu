// lab  outer product: the order of one tile's multiply-adds.
//
// Idea      A thread computes 8 x 8 elements of C from a tile in shared memory. Element by element
//           (an inner product each) every multiply-add reads both its operands. In an outer product
//           of SIDE elements of A's column by SIDE of B's row each of them is used SIDE times from
//           its register: 2 / SIDE loads an FFMA. SIDE = 1 is the inner product.
// Tile      128 x 128 x 8, 16 x 16 threads; rows and columns of a thread lie 16 apart, so that every
//           load is an LDS.32 of one wavefront in each order.
// Shared    (128 + 128) x 8 floats = 8 KiB, loaded once.
// Expected  512 FFMAs and 1024, 512, 256, 128 LDS for SIDE = 1, 2, 4, 8: bound by shared memory, but
//           for SIDE = 8 (and, where an SM has 64 lanes, 4).
// Check     The sums over all rounds are whole numbers, exact in FP32.
//
// expect: registers <= 128; spill_store_bytes == 0; spill_load_bytes == 0; hot_loop.FFMA == 512
// expect lab_outer_product<1>: hot_loop.LDS.32 == 1024
// expect lab_outer_product<2>: hot_loop.LDS.32 == 512
// expect lab_outer_product<4>: hot_loop.LDS.32 == 256
// expect lab_outer_product<8>: hot_loop.LDS.32 == 128
#include "lab_vectors.cuh"

constexpr int SIDE_C = 128, BK = 8, T = 8, APART = 16, THREADS = APART * APART;

// A: BK x 128, k-major. B: BK x 128. C: a 128 x 128 tile a block, rounds times A^T B.
template <int SIDE>
__global__ void __launch_bounds__(THREADS, 2)
    lab_outer_product(const float* __restrict__ A, const float* __restrict__ B,
                      float* __restrict__ C, int rounds) {
    static_assert(T % SIDE == 0, "the thread's 8 x 8 elements must be whole squares of SIDE");
    __shared__ float As[BK][SIDE_C], Bs[BK][SIDE_C];
    const int row = threadIdx.x / APART, col = threadIdx.x % APART;

    // ---- load
#pragma unroll 1
    for (int i = threadIdx.x; i < BK * SIDE_C; i += THREADS) {
        As[i / SIDE_C][i % SIDE_C] = A[i];
        Bs[i / SIDE_C][i % SIDE_C] = B[i];
    }
    __syncthreads();

    // ---- compute
    float acc[T][T] = {};
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
        for (int square = 0; square < T / SIDE * (T / SIDE); ++square) {
            const int i0 = square / (T / SIDE) * SIDE, j0 = square % (T / SIDE) * SIDE;
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                float a[SIDE], b[SIDE];
#pragma unroll
                for (int i = 0; i < SIDE; ++i) {
                    lowgemm::load_again(a[i], &As[k][row + APART * (i0 + i)]);
                    lowgemm::load_again(b[i], &Bs[k][col + APART * (j0 + i)]);
                }
#pragma unroll
                for (int i = 0; i < SIDE; ++i) {
#pragma unroll
                    for (int j = 0; j < SIDE; ++j)
                        acc[i0 + i][j0 + j] += a[i] * b[j];
                }
            }
        }
    }

    // ---- store
    C += static_cast<size_t>(blockIdx.x) * SIDE_C * SIDE_C;
#pragma unroll
    for (int i = 0; i < T; ++i) {
#pragma unroll
        for (int j = 0; j < T; ++j)
            C[(row + APART * i) * SIDE_C + col + APART * j] = acc[i][j];
    }
}
