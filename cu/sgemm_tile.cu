// SGEMM  tiles of any size, their sums cut twice: among a block's warps, and among blocks.
//
// Idea      A small C has too few tiles to fill a chip, and smaller tiles read more. So several
//           groups of warps share a tile, each computes its slice of every k-tile, and they add up
//           in shared memory; and where blocks are still too few, `splits` of them share a tile's
//           sum, and the one that comes last adds what all have left in the workspace, always in
//           the same order: the same bits each time.
// Operands  Any two strides. Both tiles lie in shared memory with one row a k-step. What lies along
//           k in memory is copied by 4 bytes, which transposes it; what lies across, by 16 bytes if
//           it is aligned.
// Edges     What lies outside is zeros in shared memory. The k-tile that is not whole comes first, so
//           that the loop need not ask.
// Tile      Template parameters: BM x BN x BK, TM x TN a thread, the number of slices and of stages.
// Lanes     "z" order, see sgemm.cuh: a warp's tile is 8 TM x 4 TN.
// Shared    STAGES x BK x (BM + 4 + BN + 4) floats, dynamic; the sums of slices afterwards.
// Expected  8 x 8 threads: bound by the FFMA pipe and register banks; 4 x 4: by shared memory. Small
//           problems by latency: a launch, one trip to memory, one reduction.
#include "sgemm.cuh"

using namespace lowgemm;

// An operand's tile on its way to shared memory: BX of its own dimension, BK along k. A thread copies
// from one pointer and from places at distances that are the same for all threads.
template <int KIND, int BX, int BK, int THREADS>
struct TileCopy {
    static constexpr int PITCH = BX + 4;  // banks 4k + x: no conflict where lanes differ in k and x
    static constexpr int WIDTH = by_16_bytes(KIND) ? 4 : 1;
    static constexpr int ITEMS = BX * BK / WIDTH, COPIES = (ITEMS + THREADS - 1) / THREADS;
    // Along k, 8 threads side by side and the others across; else all across, as far as it goes.
    static constexpr int SIDE = along_k(KIND) ? 8 : 1, ROW = BX / WIDTH;
    static constexpr int ACROSS = ROW < THREADS / SIDE ? ROW : THREADS / SIDE;
    static constexpr int DOWN = THREADS / SIDE / ACROSS * SIDE;  // steps along k at once
    static constexpr int TURNS = ROW / ACROSS;                   // copies of one k
    static_assert(ACROSS * TURNS == ROW && ACROSS * DOWN == THREADS, "powers of two");

    const float* next;
    long long step_x, step_k;
    unsigned target;
    bool inside[TURNS];

    static __device__ __forceinline__ unsigned x() {
        return threadIdx.x / SIDE % ACROSS * WIDTH;
    }

    static __device__ __forceinline__ unsigned k() {
        return threadIdx.x / SIDE / ACROSS * SIDE + threadIdx.x % SIDE;
    }

    __device__ __forceinline__ void begin(const float* matrix, long long along_x, long long along,
                                          unsigned x0, unsigned extent, unsigned k0) {
        step_x = KIND == X4 || KIND == X16 ? 1 : along_x;
        step_k = along_k(KIND) ? 1 : along;
        next = matrix + (x0 + x()) * step_x + (k0 + k()) * step_k;
        target = (k() * PITCH + x()) * 4;
#pragma unroll
        for (int i = 0; i < TURNS; ++i)
            inside[i] = x0 + x() + i * ACROSS * WIDTH < extent;
    }

    // The next k-tile, of which `steps` k-steps are there.
    template <bool WHOLE>
    __device__ __forceinline__ void copy(unsigned tile, unsigned steps) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) {
            const int dx = i % TURNS * ACROSS * WIDTH, dk = i / TURNS * DOWN;
            if (dk + DOWN > BK && k() + dk >= BK) continue;
            const bool valid = inside[i % TURNS] && (WHOLE ? steps > 0 : k() + dk < steps);
            copy_async_or_zero<WIDTH * 4>(tile + target + (dk * PITCH + dx) * 4,
                                          next + (dx * step_x + dk * step_k), valid);
        }
        next += WHOLE ? BK * step_k : steps * step_k;
    }
};

// SLICES groups of warps share a tile of BM x BN; each computes BK / SLICES steps of every k-tile.
// BLOCKS of them are to fit on a multiprocessor.
template <int BM, int BN, int BK, int TM, int TN, int SLICES, int STAGES, int BLOCKS, int A_KIND,
          int B_KIND>
__global__ void __launch_bounds__(BM* BN / TM / TN * SLICES, BLOCKS) sgemm_tile(const Sgemm g) {
    constexpr int LANES_M = ZOrder::LANES_M, LANES_N = ZOrder::LANES_N;
    constexpr int WM = LANES_M * TM, WN = LANES_N * TN, WARPS_N = BN / WN, WARPS_M = BM / WM;
    constexpr int GROUP = BM * BN / TM / TN, THREADS = GROUP * SLICES, STEPS = BK / SLICES;
    static_assert(WARPS_M * WM == BM && WARPS_N * WN == BN, "whole warp tiles must cover the tile");
    static_assert(TM % 4 == 0 && TN % 4 == 0, "fragments are read as float4: TM and TN in fours");
    static_assert(STEPS * SLICES == BK && BK % 8 == 0, "BK in eights, and as many for each slice");
    using CopyA = TileCopy<A_KIND, BM, BK, THREADS>;
    using CopyB = TileCopy<B_KIND, BN, BK, THREADS>;
    constexpr unsigned PITCH_A = CopyA::PITCH * 4, PITCH_B = CopyB::PITCH * 4;
    constexpr unsigned A_BYTES = PITCH_A * BK, STAGE = A_BYTES + PITCH_B * BK;
    extern __shared__ __align__(128) float4 dynamic[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned t = threadIdx.x, slice = t / GROUP, warp = t % GROUP / 32;
    const ZOrder lane(t % 32);
    const unsigned row = warp / WARPS_N * WM + lane.m * 4, col = warp % WARPS_N * WN + lane.n * 4;

    // ---- which tile, which part of its sum
    const unsigned tiles_n = (g.n + BN - 1) / BN, tiles_m = (g.m + BM - 1) / BM;
    const unsigned split = blockIdx.x % g.splits, tile = blockIdx.x / g.splits;
    const unsigned in_batch = tile % (tiles_m * tiles_n);
    const size_t batch = tile / (tiles_m * tiles_n);
    const unsigned m0 = in_batch / tiles_n * BM, n0 = in_batch % tiles_n * BN;
    const unsigned depth = (static_cast<unsigned>(g.k) + BK - 1) / BK;
    const unsigned share = depth / g.splits, extra = depth % g.splits;
    const unsigned begin = (split * share + min(split, extra)) * BK;
    const unsigned end = min(begin + (share + (split < extra)) * BK, g.k);
    const unsigned count = (end - begin + BK - 1) / BK;
    // The first k-tile has what is left over, the others are whole.
    const unsigned first = count ? end - begin - (count - 1) * BK : 0;

    CopyA a;
    CopyB b;
    a.begin(g.a + batch * g.a_batch, g.a_row, g.a_col, m0, g.m, begin);
    b.begin(g.b + batch * g.b_batch, g.b_col, g.b_row, n0, g.n, begin);

    float acc[TM][TN] = {};
    float4 x[2][TM / 4], y[2][TN / 4];
    auto load = [&](int into, unsigned stage, int step) {
        const unsigned k = slice * STEPS + step;
#pragma unroll
        for (int i = 0; i < TM / 4; ++i)
            x[into][i] = load_shared(stage + k * PITCH_A + (row + i * 4 * LANES_M) * 4);
#pragma unroll
        for (int j = 0; j < TN / 4; ++j)
            y[into][j] = load_shared(stage + A_BYTES + k * PITCH_B + (col + j * 4 * LANES_N) * 4);
    };
    // ---- load: the first tiles
    a.template copy<false>(base, first);
    b.template copy<false>(base + A_BYTES, first);
    commit_copies();
#pragma unroll
    for (int s = 1; s < STAGES - 1; ++s) {
        a.template copy<true>(base + s * STAGE, s < count);
        b.template copy<true>(base + s * STAGE + A_BYTES, s < count);
        commit_copies();
    }
    unsigned stage = base, target = base + (STAGES - 1) * STAGE, copied = STAGES - 1;
#pragma unroll 1
    for (unsigned n = 0; n < count; ++n) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();
        load(0, stage, 0);
        a.template copy<true>(target, copied < count);
        b.template copy<true>(target + A_BYTES, copied < count);
        commit_copies();
        ++copied;
        // ---- compute
#pragma unroll
        for (int k = 0; k < STEPS; ++k) {
            if (k + 1 < STEPS) load((k + 1) % 2, stage, k + 1);
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    acc[i][j] += (&x[k % 2][i / 4].x)[i % 4] * (&y[k % 2][j / 4].x)[j % 4];
        }
        target = stage;
        stage = stage + STAGE == base + STAGES * STAGE ? base : stage + STAGE;
    }

    // ---- add up: the slices, then the blocks. A thread keeps QUADS float4s of the tile.
    constexpr int QUADS = BM * BN / 4 / THREADS, PITCH = BN + (SLICES > 1 ? 4 : 0);
    float4 sum[QUADS];
    if constexpr (SLICES > 1) {
        float* sums = reinterpret_cast<float*>(dynamic);
        wait_for_copies<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                as_float4(sums[(slice * BM + row + i / 4 * 4 * LANES_M + i % 4) * PITCH + col +
                               j * LANES_N]) = as_float4(acc[i][j]);
        __syncthreads();
#pragma unroll
        for (int q = 0; q < QUADS; ++q) {
            const unsigned at = t + q * THREADS;
            float* from = sums + at / (BN / 4) * PITCH + at % (BN / 4) * 4;
            sum[q] = as_float4(*from);
#pragma unroll
            for (int s = 1; s < SLICES; ++s) {
                const float4 v = as_float4(from[s * BM * PITCH]);
                sum[q].x += v.x, sum[q].y += v.y, sum[q].z += v.z, sum[q].w += v.w;
            }
        }
    } else {
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
            sum[q] = as_float4(acc[q / (TN / 4)][q % (TN / 4) * 4]);
    }
    if (g.splits > 1) {
        // A flag, which counts, a tile; QUADS x THREADS float4s a block.
        float4* partial = g.partial + static_cast<size_t>(tile) * g.splits * (QUADS * THREADS) + t;
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
            partial[(split * QUADS + q) * THREADS] = sum[q];
        if (!is_last_block(g.flags + tile, g.splits)) return;
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
            sum[q] = __ldcg(partial + q * THREADS);
#pragma unroll 4
        for (int s = 1; s < g.splits; ++s)
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const float4 v = __ldcg(partial + (s * QUADS + q) * THREADS);
                sum[q].x += v.x, sum[q].y += v.y, sum[q].z += v.z, sum[q].w += v.w;
            }
    }

    // ---- store
    float* c = g.c + batch * g.c_batch;
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
        unsigned r = (t + q * THREADS) / (BN / 4), at = (t + q * THREADS) % (BN / 4) * 4;
        if constexpr (SLICES == 1) {
            const int i = q / (TN / 4), j = q % (TN / 4) * 4;
            r = row + i / 4 * 4 * LANES_M + i % 4, at = col + j * LANES_N;
        }
        if (m0 + r < static_cast<unsigned>(g.m)) store4(g, c, sum[q], m0 + r, n0 + at);
    }
}
