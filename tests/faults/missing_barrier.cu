// Each thread reads what a thread of the other warp has just written.
__global__ void reverse(const int* in, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    int i = blockIdx.x * 64;
    tile[t] = 0;
    __syncthreads();
    tile[t] = in[i + t];
#ifdef FIXED
    __syncthreads();
#endif
    out[i + t] = tile[63 - t];  // FAULT
}
