// The last thread reads one element behind the tile.
__global__ void differences(const int* in, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    int i = blockIdx.x * 64 + t;
    tile[t] = in[i];
    __syncthreads();
#ifdef FIXED
    if (t == 63) return;
#endif
    out[i] = tile[t + 1] - tile[t];  // FAULT
}
