// lab  thread tile: the main loop of the fastest SGEMM with 8 x 16 and with 12 x 16 sums a thread.
//
// Idea      A k-step of a TM x 16 thread tile takes TM x 16 FFMAs and TM / 4 + 4 loads of a float4
//           from shared memory: 6 for 128 FFMAs with TM = 8, 7 for 192 with TM = 12. What is no FFMA
//           costs slots of the scheduler, and a load another cycle in which its registers are written.
// Tile      BM = 32 TM by BN = 128, BK = 8; 256 threads, one block on an SM; a warp has 8 x 4 lanes in
//           "z" order. A lies transposed, K x M, so that both tiles are copied as they lie.
// Registers 192 sums of 255 leave 63 for fragments and addresses: too few to have the next k-step's
//           fragments ready well before they are used, which 128 sums allow.
// Needs     M a multiple of BM, N of BN, K of BK; behind A and B lie AHEAD tiles that are copied and
//           never used, so that the loop has no branch but its own.
#include "sgemm.cuh"

using namespace lowgemm;

constexpr int BN = 128, BK = 8, TN = 16, THREADS = 256, STAGES = 4, AHEAD = STAGES - 1;
constexpr int LANES_M = ZOrder::LANES_M, LANES_N = ZOrder::LANES_N;
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE;  // a power of two: the ring ends by a mask

template <int TM>
__global__ void __launch_bounds__(THREADS, 1)
    lab_thread_tile(const float* A, int lda, const float* B, int ldb, float* C, int ldc, int K) {
    constexpr int BM = 4 * LANES_M * TM, WM = LANES_M * TM, WN = LANES_N * TN;
    constexpr unsigned PITCH = (BM + BN) * 4;  // a k-step's row of A, then B's
    static_assert(BK * PITCH <= STAGE, "a stage holds both tiles");
    extern __shared__ __align__(1024) float4 dynamic[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned t = threadIdx.x, warp = t / 32;
    const ZOrder lane(t % 32);

    // ---- load: a warp copies a k-step's row of both tiles
    unsigned to = base + warp * PITCH + t % 32 * 16;
    unsigned from_a = base + (warp / 2 * WM + lane.m * 4) * 4;
    unsigned from_b = base + BM * 4 + (warp % 2 * WN + lane.n * 4) * 4;
    const float* a_next = A + static_cast<size_t>(warp) * lda + blockIdx.y * BM + t % 32 * 4;
    const float* b_next = B + static_cast<size_t>(warp) * ldb + blockIdx.x * BN + t % 32 * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(to), "+r"(from_a), "+r"(from_b), "+r"(lda), "+r"(ldb));
    const long long step_a = static_cast<long long>(BK) * lda;
    const long long step_b = static_cast<long long>(BK) * ldb;
    auto copy = [&](unsigned at) {
#pragma unroll
        for (int i = 0; i < TM / 4; ++i)
            copy_async<16>(at + i * 512, a_next + i * 128);
        copy_async<16>(at + BM * 4, b_next);
        commit_copies();
        a_next += step_a;
        b_next += step_b;
    };
    for (int s = 0; s < AHEAD; ++s)
        copy(to + s * STAGE);
    wait_for_copies<AHEAD - 1>();
    __syncthreads();
    float4 a[TM / 4], b[TN / 4];
    float acc[TM][TN] = {};
#pragma unroll
    for (int i = 0; i < TM / 4; ++i)
        a[i] = load_shared(from_a + i * LANES_M * 16);
#pragma unroll
    for (int j = 0; j < TN / 4; ++j)
        b[j] = load_shared(from_b + j * LANES_N * 16);

    // ---- compute
    unsigned now = 0, target = to + AHEAD * STAGE;
    int count = K / BK;
#pragma unroll 1
    do {
#pragma unroll
        for (int k = 0; k < BK; ++k) {
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    acc[i][j] += (&a[i / 4].x)[i % 4] * (&b[j / 4].x)[j % 4];
            if (k == 2) {
                // The next tile has arrived, and all have left the one before this.
                wait_for_copies<AHEAD - 2>();
                __syncthreads();
                copy(target);
            }
            if (k == BK - 1) {
                target = to + now;
                now = (now + STAGE) & (RING - 1);
            }
            const int next = (k + 1) % BK;
#pragma unroll
            for (int j = 0; j < TN / 4; ++j)
                b[j] = load_shared(from_b + now + next * PITCH + j * LANES_N * 16);
#pragma unroll
            for (int i = 0; i < TM / 4; ++i)
                a[i] = load_shared(from_a + now + next * PITCH + i * LANES_M * 16);
        }
    } while (--count);

    // ---- store
    const unsigned row = blockIdx.y * BM + warp / 2 * WM + lane.m * 4;
    float* c = C + static_cast<size_t>(row) * ldc + blockIdx.x * BN + warp % 2 * WN + lane.n * 4;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
            c[static_cast<size_t>(i / 4 * 4 * LANES_M + i % 4) * ldc + j / 4 * 4 * LANES_N +
              j % 4] = acc[i][j];
}
