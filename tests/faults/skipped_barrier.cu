// The first warp leaves before the barrier.
__global__ void pick(const int* in, int* out) {
    __shared__ int tile[96];
    int t = threadIdx.x;
    tile[t] = in[t];
#ifndef FIXED
    if (t < 32) return;
#endif
    __syncthreads();  // FAULT
    if (t >= 32) out[t] = tile[32 + (t - 32 + 17) % 64];
}
