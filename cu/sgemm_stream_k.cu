// SGEMM  stream-K: as many blocks as the chip has SMs, and each computes the same share of the sum.
//
// Idea      Tiles of C that no full wave is left for are cut along k: every block computes an equal
//           share of their k-tiles, in pieces. Whoever has the end of a tile's sum adds what lower
//           blocks have left in the workspace, always in the same order, and stores C. The copies
//           of the next piece are on their way while one is finished: no pipeline runs empty.
// Operands  A and B row- or column-major, aligned or not: five ways to copy, one loop. What has its
//           rows across the way it is read in is copied by 4 bytes to where it is read from.
// Edges     The last tiles are moved back until they lie inside: they compute some of what their
//           neighbours compute, and store only what is theirs.
// Loop      Without a branch or a select: it runs until a piece, or the piece that is copied, ends.
//           The barrier stands in the middle, so that a tile's first fragments are there in time.
// Lanes     "z" order, see sgemm.cuh.
// Tile      256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; STAGES 4.
// Shared    4 x (256 x 8 + 8 x 128) floats, 16 KiB apart = 64 KiB, dynamic.
// Registers 128 accumulators + 8 x 4 of A (four k-steps, as it lies along k; else 8) + 16 of B +
//           addresses.
// Expected  Bound by the FFMA pipe: 63 other instructions stand among 1024 FFMAs. ptxas loses more in
//           the register banks than anything else here, so that it pays to rewrite the loop.
// Needs     M at least 256, N at least 128, leading dimensions below 2^31.
#include "sgemm.cuh"
#include "stream_k.cuh"

using namespace lowgemm;

constexpr int BM = 256, BN = 128, BK = 8, TM = 8, TN = 16, STAGES = 4, THREADS = 256;
constexpr int WM = 64, WN = 64, LANES_M = ZOrder::LANES_M, LANES_N = ZOrder::LANES_N;
constexpr unsigned A_BYTES = BM * BK * 4;
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE;  // a power of two: the ring ends by a mask
constexpr int AHEAD = STAGES - 1;

// A's tile lies in shared memory as in memory where it is contiguous along k, eight floats a row:
// a thread reads four k-steps of a row at once. Otherwise, as B's tile, in one row a k-step.
template <int KIND>
struct FragmentA {
    static constexpr int STEPS = along_k(KIND) ? 4 : 1;
    static constexpr unsigned PITCH = along_k(KIND) ? BK * 4 : BM * 4;
    float4 v[along_k(KIND) ? TM : TM / 4];

    static __device__ __forceinline__ unsigned row(unsigned lane_m, int i) {
        return along_k(KIND) ? lane_m + i * LANES_M : lane_m * 4 + i / 4 * (4 * LANES_M) + i % 4;
    }

    // Where in a tile the thread of a row begins to read.
    static __device__ __forceinline__ unsigned begin(unsigned row) {
        return along_k(KIND) ? row * PITCH : row * 4;
    }

    __device__ __forceinline__ void load(unsigned tile, int k) {
        if constexpr (along_k(KIND)) {
#pragma unroll
            for (int i = 0; i < TM; ++i)
                v[i] = load_shared(tile + i * LANES_M * PITCH + k * 4);
        } else {
#pragma unroll
            for (int i = 0; i < TM / 4; ++i)
                v[i] = load_shared(tile + k * PITCH + i * (4 * LANES_M) * 4);
        }
    }

    __device__ __forceinline__ float at(int i, int k) const {
        return along_k(KIND) ? (&v[i].x)[k % 4] : (&v[i / 4].x)[i % 4];
    }
};

// One pointer and offsets that the instructions hold; A needs two.
template <int KIND>
struct CopyA {
    const float *first, *second;

    // Element (row, k) of A that the thread copies first; `second` is its neighbour half a tile on.
    __device__ __forceinline__ void begin(const float* a, int ld, unsigned row, size_t k) {
        const unsigned t = threadIdx.x;
        if constexpr (along_k(KIND)) {
            first = a + (row + t / 2) * static_cast<size_t>(ld) + k + t % 2 * 4;
            second = first + BM / 2 * static_cast<size_t>(ld);
        } else if constexpr (KIND == X16) {
            first = a + (k + t / 64) * ld + row + t % 64 * 4;
            second = first + BK / 2 * static_cast<size_t>(ld);
        } else {
            first = second = a + (k + t / 32) * ld + row + t % 32;
        }
    }

    static __device__ __forceinline__ unsigned target() {
        return KIND == X4 ? threadIdx.x / 32 * (BM * 4) + threadIdx.x % 32 * 4 : threadIdx.x * 16;
    }

    __device__ __forceinline__ void copy(unsigned to) const {
        constexpr unsigned HALF = A_BYTES / 2;
        if constexpr (by_16_bytes(KIND)) {
            copy_async<16>(to, first);
            copy_async<16>(to + HALF, second);
        } else if constexpr (KIND == K4) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                copy_async<4>(to + j * 4, first + j);
                copy_async<4>(to + HALF + j * 4, second + j);
            }
        } else {
#pragma unroll
            for (int j = 0; j < BM / 32; ++j)
                copy_async<4>(to + j * 128, first + j * 32);
        }
    }
};

template <int KIND>
struct CopyB {
    // Rows of 132 floats where neighbours along k are written at once: no bank conflict.
    static constexpr unsigned PITCH = along_k(KIND) ? (BN + 4) * 4 : BN * 4;
    const float* first;

    __device__ __forceinline__ void begin(const float* b, int ld, unsigned col, size_t k) {
        const unsigned t = threadIdx.x;
        if constexpr (along_k(KIND))
            first = b + (col + t / 2) * static_cast<size_t>(ld) + k + t % 2 * 4;
        else if constexpr (KIND == X16)
            first = b + (k + t / 32) * ld + col + t % 32 * 4;
        else
            first = b + (k + t / 32) * ld + col + t % 32;
    }

    static __device__ __forceinline__ unsigned target() {
        const unsigned t = threadIdx.x;
        if constexpr (along_k(KIND))
            return t % 2 * 4 * PITCH + t / 2 * 4;
        else
            return t / 32 * PITCH + t % 32 * (by_16_bytes(KIND) ? 16 : 4);
    }

    __device__ __forceinline__ void copy(unsigned to) const {
        if constexpr (KIND == X16) {
            copy_async<16>(to, first);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                copy_async<4>(to + j * (along_k(KIND) ? PITCH : 128),
                              first + j * (along_k(KIND) ? 1 : 32));
        }
    }
};

// partial: BM x BN floats a block; flags: one a block.
template <int A_KIND, int B_KIND>
__global__ void __launch_bounds__(THREADS, 1) sgemm_stream_k(const Sgemm g) {
    extern __shared__ __align__(1024) float4 dynamic[];
    using Fragment = FragmentA<A_KIND>;
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned t = threadIdx.x, warp = t / 32;
    const ZOrder lane(t % 32);
    const unsigned row = warp / 2 * WM, col = warp % 2 * WN + lane.n * 4;
    const unsigned M = g.m, N = g.n, K = g.k;
    const unsigned tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    // 32 bits: a product with a constant adds to a pointer of 64 bits in one instruction.
    int lda = along_k(A_KIND) ? g.a_row : g.a_col, ldb = along_k(B_KIND) ? g.b_col : g.b_row;
    asm volatile("" : "+r"(lda), "+r"(ldb));
    constexpr unsigned B_PITCH = CopyB<B_KIND>::PITCH;
    // Behind the copies of A by 16 bytes of a thread lie those of B, so that one address does.
    constexpr bool ONE_TARGET = A_KIND != X4 && B_KIND == X16;
    unsigned to = base + CopyA<A_KIND>::target();
    unsigned to_b = base + A_BYTES + CopyB<B_KIND>::target() - to;
    unsigned from_a = base + Fragment::begin(row + Fragment::row(lane.m, 0)),
             from_b = base + A_BYTES + col * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(to), "+r"(to_b), "+r"(from_a), "+r"(from_b));
    // 1 and 0, which the compiler does not know, keep a pointer in a pair of registers: a sum with a
    // product by one, or with nothing.
    const int one = threadIdx.y + 1;
    const size_t nothing = gridDim.y - 1;
    const long long step_a = static_cast<long long>(BK) * lda;
    const long long step_b = static_cast<long long>(BK) * ldb;

    Work copying(tiles * g.batches, K / BK), computing(tiles * g.batches, K / BK);
    CopyA<A_KIND> a_from{g.a, g.a};
    CopyB<B_KIND> b_from{g.b};
    unsigned copy_left = 0;
    // The tile's place, moved back where it would reach beyond C.
    auto origin_m = [&](unsigned tile) { return min(tile % tiles / tiles_n * BM, M - BM); };
    auto origin_n = [&](unsigned tile) { return min(tile % tiles % tiles_n * BN, N - BN); };
    auto advance = [&] {
        unsigned tile = 0, k = 0;
        copy_left = 1;  // nothing is left: what nobody uses
        if (copying.next()) {
            copy_left = copying.last - copying.first;
            tile = copying.tile, k = copying.first * BK;
        }
        const size_t batch = tile / tiles;
        a_from.begin(g.a + batch * g.a_batch, lda, origin_m(tile), k);
        b_from.begin(g.b + batch * g.b_batch, ldb, origin_n(tile), k);
    };
    auto copy = [&](unsigned at) {
        a_from.copy(at);
        b_from.copy(ONE_TARGET ? at + A_BYTES : at + to_b);
        commit_copies();
        a_from.first += along_k(A_KIND) ? static_cast<long long>(one) * BK : step_a;
        a_from.second += along_k(A_KIND) ? static_cast<long long>(one) * BK : step_a;
        b_from.first += along_k(B_KIND) ? static_cast<long long>(one) * BK : step_b;
    };

    Fragment a;
    float4 b[TN / 4];
    float acc[TM][TN] = {};
    unsigned stage = 0, target = to + AHEAD * STAGE;
    if (K >= BK) {
        // ---- load: the first tiles
        advance();
#pragma unroll 1
        for (int s = 0; s < AHEAD; ++s) {
            copy(to + s * STAGE);
            if (--copy_left == 0) advance();
        }
        wait_for_copies<AHEAD - 1>();
        __syncthreads();
        a.load(from_a, 0);
#pragma unroll
        for (int j = 0; j < TN / 4; ++j)
            b[j] = load_shared(from_b + j * LANES_N * 16);
    }

    bool more = computing.next();
    unsigned left = computing.last - computing.first;
#pragma unroll 1
    while (more) {
        // ---- compute: until this piece ends, or the one that is copied
        const unsigned steps = min(left, copy_left);
        unsigned count = steps, now = stage;
        a_from.first += nothing, a_from.second += nothing, b_from.first += nothing;
        if (count)
#pragma unroll 1
            do {
#pragma unroll
                for (int k = 0; k < BK; ++k) {
#pragma unroll
                    for (int i = 0; i < TM; ++i)
#pragma unroll
                        for (int j = 0; j < TN; ++j)
                            acc[i][j] += a.at(i, k) * (&b[j / 4].x)[j % 4];
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
                        b[j] = load_shared(from_b + now + next * B_PITCH + j * LANES_N * 16);
                    if (next % Fragment::STEPS == 0) a.load(from_a + now, next);
                }
            } while (--count);
        stage = now;
        a_from.first += nothing, a_from.second += nothing, b_from.first += nothing;
        left -= steps;
        copy_left -= steps;
        if (!copy_left) advance();
        if (left) continue;

        const unsigned r0 = origin_m(computing.tile) + row, c0 = origin_n(computing.tile) + col;
        float* const partial = reinterpret_cast<float*>(g.partial);
        if (computing.last < computing.depth) {
            leave_sum<THREADS>(acc, partial, g.flags);  // a higher block adds it to its own
        } else {
            if (computing.first > 0) add_sums<THREADS>(acc, computing, partial, g.flags);
            const size_t batch = computing.tile / tiles;
            // ---- compute: the k-steps that fill no tile
            const float *a0 = g.a + batch * g.a_batch, *b0 = g.b + batch * g.b_batch;
#pragma unroll 1
            for (unsigned k = K / BK * BK; k < K; ++k) {
                float x[TM], y[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    x[i] = a0[(r0 + Fragment::row(lane.m, i)) * g.a_row + k * g.a_col];
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    y[j] = b0[k * g.b_row + (c0 + j / 4 * LANES_N * 4 + j % 4) * g.b_col];
                outer_product(acc, x, y);
            }
            // ---- store: what no tile before this one stores
            const unsigned first_m = computing.tile % tiles / tiles_n * BM;
            const unsigned first_n = computing.tile % tiles % tiles_n * BN;
            float* c = g.c + batch * g.c_batch;
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const unsigned r = r0 + Fragment::row(lane.m, i);
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    const unsigned at = c0 + j * LANES_N;
                    if (r >= first_m) store4(g, c, as_float4(acc[i][j]), r, at, first_n);
                }
            }
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
