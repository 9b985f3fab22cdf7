// A bound that is off by one: <= for <.
__global__ void fill(float* out, float value, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < n)
#else
    if (i <= n)
#endif
        out[i] = value;  // FAULT
}
