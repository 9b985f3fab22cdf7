// ex13 stream-K: every block computes the same share of all sums, so that no wave is partly empty.
//
// Idea      512 tiles of 256 x 128 on 132 multiprocessors are 3.9 waves, and the fourth leaves a tenth of
//           the chip idle; a few tiles leave most of it idle. Here one block a multiprocessor goes
//           through its share of the sum: whole tiles, and before them a piece of one or two that are
//           cut. Who has a tile's end adds what lower blocks have of it, always in one order: the
//           same bits each time. The loop is that of ex12, and goes on from tile to tile: the
//           first k-tiles of the next piece are on their way while this one is computed.
// Tile      As ex12: 256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; 4 stages of cp.async.
// Shared    4 x 16 KiB, dynamic.
// Registers As ex12; the pieces are counted outside of the loop.
// Expected  The loop costs what ex12's does. At 4096 x 4096 132 blocks have 3.88 tiles each instead of 4
//           for most: 3 % less, minus what adding up the cut tiles costs.
// Needs     64 KiB of dynamic shared memory; a workspace: 128 KiB a block, and a flag a block that
//           is zero and is zero again afterwards. No more blocks than run at once: they wait for each
//           other. The rung ex13 is this kernel below compute capability 9.0 and for rows that TMA
//           cannot read, else ex13_tma.
//
// expect: registers <= 255; spill_store_bytes == 0; spill_load_bytes == 0
// expect ex13_stream_k<true>: hot_loop.blocks == 1; hot_loop.BAR == 1; hot_loop.LDGSTS.128 == 3
// expect ex13_stream_k<true>: hot_loop.FFMA == 1024; hot_loop.LDS.128 == 48; hot_loop.LDS.32 == 0
// expect ex13_stream_k<true>: hot_loop.ffma_share >= 0.92
#include "common.cuh"
#include "stream_k.cuh"
#include "tile_source.cuh"

using namespace lowgemm;

constexpr int BM = 256, BN = 128, BK = 8, TM = 8, TN = 16, STAGES = 4, THREADS = 256;
constexpr int WM = 64, WN = 64;
constexpr unsigned A_BYTES = BM * BK * 4, A_PITCH = BK * 4, B_PITCH = BN * 4;
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE;  // a power of two: the ring ends by a mask
constexpr int AHEAD = STAGES - 1;
using Warp = ZWarpTile<WM, WN, TM, TN, BN / WN>;

// The k-steps that fill no tile, from global memory.
__device__ __forceinline__ void add_last_steps(float (&acc)[TM][TN], const Warp& warp,
                                               Origin origin, LOWGEMM_GEMM_PARAMETERS) {
#pragma unroll 1
    for (unsigned k = K / BK * BK; k < K; ++k) {
        float x[TM], y[TN];
#pragma unroll
        for (int i = 0; i < TM; ++i)
            x[i] = row_of(A, min(origin.row + warp.row_of(i), M - 1u), lda)[k];
#pragma unroll
        for (int j = 0; j < TN; ++j)
            y[j] = row_of(B, k, ldb)[min(origin.col + warp.col_of(j), N - 1u)];
        outer_product(acc, x, y);
    }
}

template <bool Vec4>
__global__ void __launch_bounds__(THREADS, 1)
    ex13_stream_k(LOWGEMM_GEMM_PARAMETERS, float* partial, unsigned* flags) {
    extern __shared__ __align__(1024) float4 dynamic[];
    using Source = TileSource<Vec4, BM, BN>;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const Warp warp(threadIdx.x);
    const unsigned tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1u) / BM * tiles_n;
    const unsigned depth = K / BK;
    unsigned to = base + Source::target(), to_b = Source::target_b();
    unsigned from_a = base + warp.row * A_PITCH, from_b = base + A_BYTES + warp.col * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(to), "+r"(to_b), "+r"(from_a), "+r"(from_b));
    // Plus nothing, which the compiler does not know: a pointer stays in a pair of registers.
    const size_t nothing = gridDim.y - 1;
    unsigned steps_ahead = BK * (threadIdx.y + 1);
    asm volatile("" : "+r"(steps_ahead));

    Work copying(tiles, depth), computing(tiles, depth);
    auto origin_of = [&](unsigned tile) {
        return Origin{tile / tiles_n * BM, tile % tiles_n * BN};
    };
    Source source;
    unsigned copy_left = 0;
    auto advance = [&] {
        unsigned tile = 0, first = 0;
        copy_left = 1;  // nothing is left: what nobody uses
        if (copying.next()) {
            copy_left = copying.last - copying.first;
            tile = copying.tile, first = copying.first;
        }
        source.begin(origin_of(tile), first * BK, M, N, K, A, lda, B, ldb, C, ldc);
    };
    auto copy = [&](unsigned at) {
        source.copy(at, at + to_b);
        source.advance(steps_ahead, ldb);
    };
    auto keep = [&] {
        source.a[0] += nothing, source.a[1] += nothing;
#pragma unroll
        for (int j = 0; j < Source::COPIES_B; ++j)
            source.b[j] += nothing;
    };

    float4 a[TM], b[TN / 4];
    auto load_a = [&](unsigned stage, int k) {
#pragma unroll
        for (int i = 0; i < TM; ++i)
            a[i] = load_shared(from_a + stage + i * (Warp::LANES_M * A_PITCH) + k * 4);
    };
    auto load_b = [&](unsigned stage, int k) {
#pragma unroll
        for (int j = 0; j < TN / 4; ++j)
            b[j] = load_shared(from_b + stage + k * B_PITCH + j * (Warp::LANES_N * 16));
    };
    float acc[TM][TN] = {};
    unsigned stage = 0, target = to + AHEAD * STAGE;
    if (depth) {
        // ---- load: the first tiles
        advance();
#pragma unroll 1
        for (int s = 0; s < AHEAD; ++s) {
            copy(to + s * STAGE);
            if (--copy_left == 0) advance();
        }
        wait_for_copies<AHEAD - 1>();
        __syncthreads();
        load_a(0, 0);
        load_b(0, 0);
    }

    bool more = computing.next();
    unsigned left = computing.last - computing.first;
#pragma unroll 1
    while (more) {
        // ---- compute: until this piece ends, or the one that is copied
        const unsigned steps = min(left, copy_left);
        unsigned count = steps, now = stage;
        keep();
        if (count)
#pragma unroll 1
            do {
#pragma unroll
                for (int k = 0; k < BK; ++k) {
#pragma unroll
                    for (int i = 0; i < TM; ++i)
#pragma unroll
                        for (int j = 0; j < TN; ++j)
                            acc[i][j] += (&a[i].x)[k % 4] * (&b[j / 4].x)[j % 4];
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
                    load_b(now, next);
                    if (next % 4 == 0) load_a(now, next);
                }
            } while (--count);
        stage = now;
        keep();
        left -= steps;
        copy_left -= steps;
        if (!copy_left) advance();
        if (left) continue;

        if (computing.last < computing.depth) {
            leave_sum<THREADS>(acc, partial, flags);  // a higher block adds it to its own
        } else {
            if (computing.first > 0) add_sums<THREADS>(acc, computing, partial, flags);
            const Origin origin = origin_of(computing.tile);
            add_last_steps(acc, warp, origin, M, N, K, A, lda, B, ldb, C, ldc);
            // ---- store
            warp.store(acc, C, ldc, origin, M, N);
        }
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j)
                acc[i][j] = 0.0f;
        more = computing.next();
        left = computing.last - computing.first;
    }
}
