// A launch bound that leaves 32 registers to a kernel that wants 64 accumulators: real spills.
__global__ void __launch_bounds__(1024, 2) spilling(const float* a, const float* b, float* c, int k) {
    float acc[8][8] = {};
    for (int i = 0; i < k; ++i) {
        float x[8], y[8];
        for (int r = 0; r < 8; ++r) x[r] = a[i * 8192 + threadIdx.x * 8 + r];
        for (int r = 0; r < 8; ++r) y[r] = b[i * 8192 + threadIdx.x * 8 + r];
#pragma unroll
        for (int r = 0; r < 8; ++r)
#pragma unroll
            for (int s = 0; s < 8; ++s) acc[r][s] += x[r] * y[s];
    }
    for (int r = 0; r < 8; ++r)
        for (int s = 0; s < 8; ++s) c[(r * 8 + s) * 1024 + threadIdx.x] = acc[r][s];
}
