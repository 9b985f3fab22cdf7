// Only the first warp has written its part of the tile.
__global__ void reverse(const int* in, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
#ifdef FIXED
    if (t < 64) tile[t] = in[t];
#else
    if (t < 32) tile[t] = in[t];
#endif
    __syncthreads();
    out[t] = tile[63 - t];  // FAULT
}
