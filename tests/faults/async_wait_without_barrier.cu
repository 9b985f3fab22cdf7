// A wait completes the thread's own copies; those of other warps need a barrier besides.
#include "async_copy.cuh"

__global__ void reverse(const int4* in, int4* out) {
    __shared__ int4 tile[64];
    int t = threadIdx.x;
    copy_async(&tile[t], &in[t]);
    commit_group();
    wait_group<0>();
#ifdef FIXED
    __syncthreads();
#endif
    int from = 63 - t;
    out[t] = tile[from];  // FAULT
}
