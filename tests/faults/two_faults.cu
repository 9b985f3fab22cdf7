// One element of the tile is never written, and one result goes behind the end.
__global__ void shift(const int* in, int* out, int n) {
    __shared__ int tile[65];
    int t = threadIdx.x;
    tile[t] = in[t];
#ifdef FIXED
    if (t == 0) tile[64] = 0;
#endif
    __syncthreads();
    int value = tile[t + 1];  // FAULT
#ifdef FIXED
    if (t + 1 < n)
#endif
        out[t + 1] = value + in[t];  // FAULT
}
