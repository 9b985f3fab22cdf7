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

// Rows of n elements in rows of four: the last copy of a row reads what there is, zeros follow.
__global__ void pad_rows(const int* in, int4* out, int n, int rows) {
    __shared__ int4 tile[64];
    int t = threadIdx.x;
    int column = 4 * t;
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        int here = min(max(n - column, 0), 4);
        const int* from = here ? &in[row * ((n + 3) / 4 * 4) + column] : in;
        __pipeline_memcpy_async(&tile[t], from, 16, 16 - 4 * here);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        out[row * blockDim.x + t] = tile[t];
    }
}
