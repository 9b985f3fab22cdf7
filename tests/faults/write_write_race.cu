// Two warps write one word; neighbouring bytes that they write as well are no fault.
__global__ void vote(const int* in, int* out) {
    __shared__ int winner;
    __shared__ unsigned char seen[2];
    int t = threadIdx.x;
    seen[t / 32] = in[t / 32 * 32] > 0;
#ifdef FIXED
    if (t == 32) winner = in[t];
#else
    if (t % 32 == 0) winner = in[t];  // FAULT
#endif
    __syncthreads();
    out[t] = winner + seen[0] + 2 * seen[1];
}
