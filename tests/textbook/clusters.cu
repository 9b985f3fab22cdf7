// A histogram whose bins lie in the shared memory of the blocks of a cluster, each holding a part.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

#define BINS_PER_BLOCK 50

__global__ void histogram_cluster(const int* data, int n, unsigned* histogram) {
    __shared__ unsigned bins[BINS_PER_BLOCK];
    cg::cluster_group cluster = cg::this_cluster();
    for (int b = threadIdx.x; b < BINS_PER_BLOCK; b += blockDim.x) bins[b] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int bin = data[i];
        unsigned* part = cluster.map_shared_rank(bins, bin / BINS_PER_BLOCK);
        atomicAdd(part + bin % BINS_PER_BLOCK, 1);
    }
    cluster.sync();
    unsigned* own = histogram + cluster.block_rank() * BINS_PER_BLOCK;
    for (int b = threadIdx.x; b < BINS_PER_BLOCK; b += blockDim.x) atomicAdd(own + b, bins[b]);
}
