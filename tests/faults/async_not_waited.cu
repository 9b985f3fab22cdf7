// A barrier alone does not complete an asynchronous copy.
#include "async_copy.cuh"

__global__ void reverse(const int4* in, int4* out) {
    __shared__ int4 tile[64];
    int t = threadIdx.x;
    copy_async(&tile[t], &in[t]);
    commit_group();
#ifdef FIXED
    wait_group<0>();
#endif
    __syncthreads();
    out[t] = tile[63 - t];  // FAULT
}
