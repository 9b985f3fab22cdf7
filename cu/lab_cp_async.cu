// lab  cp.async against load and store: three ways into shared memory, one pipeline.
//
// Idea      A k-tile reaches shared memory through registers (LDG, then STS when it is there), or past
//           them (LDGSTS, the instruction of cp.async) in pieces of 16 or of 4 bytes. Everything else
//           is the same: tile, layout, one tile ahead, one barrier a tile.
// Tile      128 x 128 x 8, warp 32 x 64, thread 8 x 8, 256 threads, two stages of 8 KiB. A is stored
//           k-major (K x M), so that all three copy it as it lies; 16 bytes at once cannot transpose.
// Compute   true: the product C = A^T B. false: the copies alone; a thread reads back 16 bytes of each
//           operand, those of a neighbour, and sums them up.
// Check     With whole numbers every sum is exact in FP32.
#include "common.cuh"

constexpr int BM = 128, BN = 128, BK = 8, TM = 8, TN = 8, WM = 4 * TM, WN = 8 * TN;
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int REGISTERS = 0, ASYNC_16 = 1, ASYNC_4 = 2;

using Tile = float[BK][BM];
static_assert(BM == BN && BK * BM == 4 * THREADS, "a thread moves four floats of each operand");

template <int BYTES>
__device__ __forceinline__ void copy_async(float& to, const float* from) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&to));
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

// One operand's k-tile on its way: BK rows of a matrix, BM columns each.
template <int HOW>
struct Copy {
    float4 held;  // through registers only

    // `from` is the tile's first element.
    __device__ __forceinline__ void start(Tile& to, const float* from, unsigned ld) {
        const unsigned k = threadIdx.x / (BM / 4), col = threadIdx.x % (BM / 4) * 4;
        if constexpr (HOW == REGISTERS)
            held = *reinterpret_cast<const float4*>(lowgemm::row_of(from, k, ld) + col);
        if constexpr (HOW == ASYNC_16)
            copy_async<16>(to[k][col], lowgemm::row_of(from, k, ld) + col);
        if constexpr (HOW == ASYNC_4) {
            // Neighbouring threads copy neighbouring floats, a warp one k.
            const unsigned lane = threadIdx.x % (BM / 4);
            const float* source = lowgemm::row_of(from, k, ld) + lane;
#pragma unroll
            for (int i = 0; i < 4; ++i)
                copy_async<4>(to[k][lane + i * (BM / 4)], source + i * (BM / 4));
        }
    }

    __device__ __forceinline__ void store(Tile& to) const {
        if constexpr (HOW == REGISTERS)
            lowgemm::as_float4(to[threadIdx.x / (BM / 4)][threadIdx.x % (BM / 4) * 4]) = held;
    }
};

// This thread's copies of both operands are in shared memory.
template <int HOW>
__device__ __forceinline__ void finish(const Copy<HOW>& a, const Copy<HOW>& b, Tile& As, Tile& Bs) {
    a.store(As);
    b.store(Bs);
    if constexpr (HOW != REGISTERS) asm volatile("cp.async.wait_all;" ::: "memory");
}

// C = A^T B with A K x M, B K x N: M and N multiples of 128, K of 8. Without COMPUTE, C holds a sum
// for each thread of each block.
template <int HOW, bool COMPUTE>
__global__ void __launch_bounds__(THREADS, 2)
    lab_cp_async(int M, int N, int K, const float* __restrict__ A, const float* __restrict__ B,
                 float* __restrict__ C) {
    __shared__ alignas(16) float As[2][BK][BM], Bs[2][BK][BN];
    const auto origin = lowgemm::block_origin<BM, BN>(N);
    const lowgemm::WarpTile<WM, WN, TM, TN, BN / WN> warp(threadIdx.x);
    const float *from_a = A + origin.row, *from_b = B + origin.col;
    Copy<HOW> a, b;
    float acc[TM][TN] = {}, sum = 0.0f;

    a.start(As[0], from_a, M);
    b.start(Bs[0], from_b, N);
    finish(a, b, As[0], Bs[0]);
    __syncthreads();

    // Two tiles an iteration make the buffers' addresses constants. Of the copies alone the compiler
    // would then start two tiles at once.
    constexpr int TILES = COMPUTE ? 2 : 1;
    unsigned current = 0;
#pragma unroll TILES
    for (int k0 = 0; k0 < K; k0 += BK) {
        // ---- load: the next tile; the last one once more behind the last, so that nothing branches
        const unsigned next = min(k0 + BK, K - BK), other = current ^ 1;
        a.start(As[other], lowgemm::row_of(from_a, next, M), M);
        b.start(Bs[other], lowgemm::row_of(from_b, next, N), N);

        // ---- compute
        if constexpr (COMPUTE) {
            lowgemm::Fragment<TM, TN> fragment[2];
            fragment[0].load(warp, As[current][0], Bs[current][0], 0);
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                if (k + 1 < BK)
                    fragment[(k + 1) % 2].load(warp, As[current][k + 1], Bs[current][k + 1], 0);
                lowgemm::outer_product(acc, fragment[k % 2].a, fragment[k % 2].b);
            }
        } else {
            const unsigned at = (threadIdx.x + 32) % THREADS, k = at / 32, col = at % 32 * 4;
            const float4 x = lowgemm::as_float4(As[current][k][col]);
            const float4 y = lowgemm::as_float4(Bs[current][k][col]);
            sum += ((x.x + x.y) + (x.z + x.w)) + ((y.x + y.y) + (y.z + y.w));
        }

        // ---- store: the next tile has arrived for every thread
        finish(a, b, As[other], Bs[other]);
        __syncthreads();
        current = other;
    }

    if constexpr (COMPUTE)
        warp.store(acc, C, N, origin, M, N);
    else
        C[blockIdx.x * THREADS + threadIdx.x] = sum;
}
