// lab  shared vectors: LDS.32, LDS.64 and LDS.128, and which lanes read the same address.
//
// Idea      Shared memory gives 128 bytes a cycle: an LDS.64 of distinct words takes two wavefronts,
//           an LDS.128 four. Where every lane n reads what lane n^1 (or n^2) reads, the load takes
//           half as many and the registers get 256 bytes a cycle. A table says where each lane reads,
//           so the machine code depends on the width alone.
// Shared    16 rows of 512 bytes = 8 KiB.
// Expected  A wavefront a cycle: the sums take half an IADD3 a word, less than the loads.
// Check     Sums modulo 2^32 of every thread.
//
// expect: registers <= 40; spill_store_bytes == 0; spill_load_bytes == 0
// expect lab_shared_vectors<unsigned int>: hot_loop.LDS.32 == 16
// expect lab_shared_vectors<uint2>: hot_loop.LDS.64 == 16
// expect lab_shared_vectors<uint4>: hot_loop.LDS.128 == 16
#include "lab_vectors.cuh"

constexpr int ROWS = 16, WORDS = 128, THREADS = 256;

// in: ROWS x WORDS. place: the word at which each of the 32 lanes reads. out: a sum a thread.
template <class V>
__global__ void __launch_bounds__(THREADS)
    lab_shared_vectors(const unsigned* __restrict__ in, const int* __restrict__ place,
                       unsigned* __restrict__ out, int rounds) {
    __shared__ alignas(16) unsigned tile[ROWS][WORDS];
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * WORDS; i += THREADS)
        tile[i / WORDS][i % WORDS] = in[i];
    const int word = place[threadIdx.x % 32];
    __syncthreads();

    unsigned sum = 0;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
        // ---- load: rows of 512 bytes keep the bank of each lane
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
            V v;
            lowgemm::load_again(v, &tile[row][word]);
            sum += lowgemm::sum_of(v);
        }
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
