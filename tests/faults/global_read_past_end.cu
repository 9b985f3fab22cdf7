// The last element's thread reads its neighbour, which is not there.
__global__ void differences(const float* in, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i >= n - 1) return;
#else
    if (i >= n) return;
#endif
    float own = in[i];
    float next = in[i + 1];  // FAULT
    out[i] = next - own;
}
