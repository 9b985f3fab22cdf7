// Stream-K: the same share of the sum for each block, whatever the number of tiles.
#pragma once

namespace lowgemm {

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

// Leaves a block's sum of a piece for the block that has the tile's end: a float4 a thread at a time,
// side by side.
template <int THREADS, int Tm, int Tn>
__device__ __forceinline__ void leave_sum(const float (&acc)[Tm][Tn], float* partial,
                                          unsigned* flags) {
    const unsigned t = threadIdx.x;
    volatile unsigned* ready = flags;
    float4* out = reinterpret_cast<float4*>(partial) +
                  static_cast<size_t>(blockIdx.x) * (THREADS * Tm * Tn / 4) + t;
#pragma unroll
    for (int i = 0; i < Tm; ++i)
#pragma unroll
        for (int j = 0; j < Tn; j += 4)
            out[(i * Tn + j) / 4 * THREADS] = {acc[i][j], acc[i][j + 1], acc[i][j + 2],
                                               acc[i][j + 3]};
    __threadfence();
    __syncthreads();
    if (t == 0) ready[blockIdx.x] = 1;
}

// Adds what lower blocks have of a tile's sum, the nearest one its last part, and clears their flags.
template <int THREADS, int Tm, int Tn>
__device__ __forceinline__ void add_sums(float (&acc)[Tm][Tn], const Work& work,
                                         const float* partial, unsigned* flags) {
    const unsigned t = threadIdx.x, begin = (work.tile - work.split) * work.depth;
    volatile unsigned* ready = flags;
    unsigned other = blockIdx.x;
    do {
        --other;
        while (__any_sync(~0u, ready[other] == 0))
            ;
        __threadfence();
        __syncthreads();
        if (t == 0) ready[other] = 0;
        const float4* in = reinterpret_cast<const float4*>(partial) +
                           static_cast<size_t>(other) * (THREADS * Tm * Tn / 4) + t;
#pragma unroll
        for (int i = 0; i < Tm; ++i)
#pragma unroll
            for (int j = 0; j < Tn; j += 4) {
                const float4 v = __ldcg(in + (i * Tn + j) / 4 * THREADS);
                acc[i][j] += v.x, acc[i][j + 1] += v.y;
                acc[i][j + 2] += v.z, acc[i][j + 3] += v.w;
            }
    } while (work.start_of(other) > begin);
}

}  // namespace lowgemm
