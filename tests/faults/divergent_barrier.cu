// Half of each warp waits at a barrier that the other half never comes to.
__global__ void exchange(const int* in, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    tile[t] = in[t];
#ifdef FIXED
    __syncthreads();
    if (t % 32 < 16) out[t] = tile[t ^ 1];
#else
    if (t % 32 < 16) {
        __syncthreads();  // FAULT
        out[t] = tile[t ^ 1];
    }
#endif
    out[t + 64] = 1;
}
