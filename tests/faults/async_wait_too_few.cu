// The wait leaves one group open: that of the second stage.
#include "async_copy.cuh"

__global__ void add_stages(const int4* in, int4* out) {
    __shared__ int4 stages[2][64];
    int t = threadIdx.x;
    for (int s = 0; s < 2; ++s) {
        copy_async(&stages[s][t], &in[s * 64 + t]);
        commit_group();
    }
#ifdef FIXED
    wait_group<0>();
#else
    wait_group<1>();
#endif
    __syncthreads();
    int4 a = stages[0][63 - t];
    int4 b = stages[1][63 - t];  // FAULT
    out[t] = make_int4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
