// A loop's next turn overwrites the tile that the other warps still read.
__global__ void sum_tiles(const int* in, int* out, int tiles) {
    __shared__ int tile[96];
    int t = threadIdx.x;
    int sum = 0;
#pragma unroll 1
    for (int k = 0; k < tiles; ++k) {
        tile[t] = in[k * 96 + t];  // FAULT
        __syncthreads();
        sum += tile[95 - t] * (k + 1);
#ifdef FIXED
        __syncthreads();
#endif
    }
    out[t] = sum;
}
