// SGEMM  stream-K: as many blocks as the chip has SMs, and each computes the same share of the sum.
//
// Idea      Tiles of C that no full wave is left for are cut along k: every block computes an equal
//           share of their k-tiles, in pieces. Whoever has the end of a tile's sum adds what lower
//           blocks have left in the workspace, always in the same order, and stores C. The copies
//           of the next piece are on their way while one is finished: no pipeline runs empty.
// Loop      Without a branch or a select: it runs until a piece, or the piece that is copied, ends.
//           The barrier stands in the middle, so that a tile's first fragments are there in time.
// Lanes     "z" order: lane bit 0 moves along N only, bit 1 along M only. Lanes n and n^1 read one
//           address of A, n and n^2 one of B, and an LDS.128 takes two wavefronts instead of four.
// Tile      256 x 128 x 8, warp 64 x 64, thread 8 x 16, 256 threads; STAGES 4.
// Shared    4 x (256 x 8 + 8 x 128) floats, 16 KiB apart = 64 KiB, dynamic.
// Registers 128 accumulators + 8 x 4 of A (four k-steps, as it lies) + 16 of B + addresses.
// Expected  Bound by the FFMA pipe: 63 other instructions stand among 1024 FFMAs. ptxas loses more in
//           the register banks than anything else here, so that it pays to rewrite the loop.
// Needs     Rows of A, B and C on 16 bytes: K, N and the leading dimensions are multiples of 4.
#include "common.cuh"

constexpr int BM = 256, BN = 128, BK = 8, TM = 8, TN = 16, STAGES = 4, THREADS = 256;
constexpr int WM = 64, WN = 64, LANES_M = 8, LANES_N = 4;
constexpr unsigned A_BYTES = BM * BK * 4, ROW_BYTES = BK * 4;
constexpr unsigned STAGE = 16384, RING = STAGES * STAGE;  // a power of two: the ring ends by a mask
constexpr int AHEAD = STAGES - 1;
constexpr int FLAGS = 256;  // float4s of flags, one flag a block, before the tiles

__device__ __forceinline__ void copy16_async(unsigned shared, const float* global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

// Volatile: the compiler keeps the order of loads and barriers.
__device__ __forceinline__ float4 load_shared(unsigned at) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(at));
    return v;
}

// The pieces of the sum that a block computes, one after the other: first its share of the tiles
// that are cut, from the end backwards, so that who adds never waits for somebody behind; then
// whole tiles.
struct Work {
    unsigned tile, first, last;  // the tile of C, and the k-tiles [first, last) of its sum
    unsigned tiles, depth, split, share, extra, begin, end, wave, waves;

    __device__ __forceinline__ Work(unsigned tiles_, unsigned depth_)
        : tiles(tiles_), depth(depth_), wave(0) {
        waves = tiles / gridDim.x;
        if (tiles % gridDim.x && waves) --waves;
        if (!depth) waves = (tiles + gridDim.x - 1) / gridDim.x;
        split = waves * gridDim.x;
        const unsigned rest = tiles > split ? (tiles - split) * depth : 0;
        share = rest / gridDim.x;
        extra = rest % gridDim.x;
        begin = start_of(blockIdx.x);
        end = start_of(blockIdx.x + 1);
    }

    __device__ __forceinline__ unsigned start_of(unsigned block) const {
        return block * share + min(block, extra);
    }

    __device__ __forceinline__ bool next() {
        if (begin < end) {
            const unsigned at = (end - 1) / depth, start = max(begin, at * depth);
            tile = split + at;
            first = start - at * depth;
            last = end - at * depth;
            end = start;
            return true;
        }
        if (wave == waves) return false;
        tile = wave++ * gridDim.x + blockIdx.x;
        first = 0;
        last = depth;
        return tile < tiles;
    }
};

// workspace: FLAGS float4s of zeros, which are zeros again afterwards, and BM x BN floats a block.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sgemm_stream_k(LOWGEMM_GEMM_PARAMETERS, float4* __restrict__ workspace) {
    extern __shared__ __align__(1024) float4 dynamic[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(dynamic));
    const unsigned t = threadIdx.x, lane = t % 32, warp = t / 32;
    const unsigned lane_n = (lane & 1) | (lane >> 1 & 2),
                   lane_m = (lane >> 1 & 1) | (lane >> 2 & 6);
    const unsigned row = warp / 2 * WM + lane_m, col = warp % 2 * WN + lane_n * 4;
    const unsigned tiles_n = (N + BN - 1) / BN, tiles = (M + BM - 1) / BM * tiles_n;
    unsigned to = base + t * 16, from_a = base + row * ROW_BYTES, from_b = base + A_BYTES + col * 4;
    // Opaque: otherwise the loop computes them anew each time.
    asm volatile("" : "+r"(to), "+r"(from_a), "+r"(from_b));
    const long long step_b = static_cast<long long>(BK) * ldb;
    // 1 and 0, which the compiler does not know: a product by one adds to a pointer of 64 bits in
    // one instruction, and keeps it in a pair of registers, as does the sum with nothing.
    const int one = threadIdx.y + 1;
    const size_t nothing = gridDim.y - 1;

    Work copying(tiles, K / BK), computing(tiles, K / BK);
    const float *a0 = A, *a1 = A, *b0 = B;
    unsigned copy_left = 0;
    auto advance = [&] {
        if (copying.next()) {
            copy_left = copying.last - copying.first;
            const unsigned r = copying.tile / tiles_n * BM, c = copying.tile % tiles_n * BN;
            const size_t k = static_cast<size_t>(copying.first) * BK;
            a0 = lowgemm::row_of(A, min(r + t / 2, M - 1u), lda) + k + t % 2 * 4;
            a1 = lowgemm::row_of(A, min(r + t / 2 + BM / 2, M - 1u), lda) + k + t % 2 * 4;
            b0 = B + (k + t / 32) * ldb + min(c + t % 32 * 4, N - 4u);
            return;
        }
        copy_left = 1;  // nothing is left: what nobody uses
        a0 = a1 = lowgemm::row_of(A, min(t / 2, M - 1u), lda) + t % 2 * 4;
        b0 = lowgemm::row_of(B, t / 32, ldb) + min(t % 32 * 4, N - 4u);
    };
    auto copy = [&](unsigned at) {
        copy16_async(at, a0);
        copy16_async(at + BM / 2 * ROW_BYTES, a1);
        copy16_async(at + A_BYTES, b0);
        asm volatile("cp.async.commit_group;" ::: "memory");
        a0 += static_cast<long long>(one) * BK;
        a1 += static_cast<long long>(one) * BK;
        b0 += step_b;
    };

    float4 a[TM], b[TN / 4];
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
        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 1) : "memory");
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TM; ++i)
            a[i] = load_shared(from_a + i * LANES_M * ROW_BYTES);
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
        a0 += nothing, a1 += nothing, b0 += nothing;
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
                        asm volatile("cp.async.wait_group %0;" ::"n"(AHEAD - 2) : "memory");
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
                        b[j] = load_shared(from_b + now + next * BN * 4 + j * LANES_N * 16);
                    if (next % 4 == 0)
#pragma unroll
                        for (int i = 0; i < TM; ++i)
                            a[i] = load_shared(from_a + now + i * LANES_M * ROW_BYTES + next * 4);
                }
            } while (--count);
        stage = now;
        a0 += nothing, a1 += nothing, b0 += nothing;
        left -= steps;
        copy_left -= steps;
        if (!copy_left) advance();
        if (left) continue;

        const unsigned r0 = computing.tile / tiles_n * BM, c0 = computing.tile % tiles_n * BN;
        volatile unsigned* flags = reinterpret_cast<volatile unsigned*>(workspace);
        if (computing.last < computing.depth) {
            // ---- store: the sum goes on in a higher block, which adds this
            float4* out = workspace + FLAGS + static_cast<size_t>(blockIdx.x) * (BM * BN / 4) + t;
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; j += 4)
                    out[(i * TN + j) / 4 * THREADS] = lowgemm::as_float4(acc[i][j]);
            __threadfence();
            __syncthreads();
            if (t == 0) flags[blockIdx.x] = 1;
        } else {
            if (computing.first > 0) {
                // Lower blocks have the rest of this tile's sum, the nearest one its last part.
                const unsigned begin = (computing.tile - computing.split) * computing.depth;
                unsigned other = blockIdx.x;
                do {
                    --other;
                    while (__any_sync(~0u, flags[other] == 0))
                        ;
                    __threadfence();
                    __syncthreads();
                    if (t == 0) flags[other] = 0;
                    const float4* in =
                        workspace + FLAGS + static_cast<size_t>(other) * (BM * BN / 4) + t;
#pragma unroll
                    for (int i = 0; i < TM; ++i)
#pragma unroll
                        for (int j = 0; j < TN; j += 4) {
                            const float4 v = __ldcg(in + (i * TN + j) / 4 * THREADS);
                            acc[i][j] += v.x, acc[i][j + 1] += v.y;
                            acc[i][j + 2] += v.z, acc[i][j + 3] += v.w;
                        }
                } while (computing.start_of(other) > begin);
            }
            // ---- compute: the k-steps that fill no tile
#pragma unroll 1
            for (unsigned k = K / BK * BK; k < K; ++k) {
                float x[TM], y[TN];
#pragma unroll
                for (int i = 0; i < TM; ++i)
                    x[i] = lowgemm::row_of(A, min(r0 + row + i * LANES_M, M - 1u), lda)[k];
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    y[j] = lowgemm::row_of(
                        B, k, ldb)[min(c0 + col + j / 4 * LANES_N * 4 + j % 4, N - 1u)];
                lowgemm::outer_product(acc, x, y);
            }
            // ---- store
#pragma unroll
            for (int i = 0; i < TM; ++i) {
                const unsigned r = r0 + row + i * LANES_M;
                float* out = C + static_cast<size_t>(r) * ldc;
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    const unsigned c = c0 + col + j * LANES_N;
                    if (r < M && c < N) lowgemm::as_float4(out[c]) = lowgemm::as_float4(acc[i][j]);
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
