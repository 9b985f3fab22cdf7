// Asynchronous copies through CUDA's pipeline primitives.
#include <cuda_pipeline.h>

__global__ void rotate_tile(const int2* in, int2* out, int n) {
    __shared__ int2 tile[2][32];
    int t = threadIdx.x;
    int tiles = (n + 31) / 32;
    for (int k = blockIdx.x; k < tiles; k += gridDim.x) {
        int i = k * 32 + t;
        if (i < n) __pipeline_memcpy_async(&tile[threadIdx.y][t], &in[i], sizeof(int2));
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        int count = min(32, n - k * 32);
        if (i < n && threadIdx.y == 0) {
            int2 other = tile[1][(t + 1) % count];
            out[i] = make_int2(other.y, tile[0][t].x);
        }
        __syncthreads();
    }
}
