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

}  // namespace lowgemm
