// FP64 with square root and division, and 64-bit integers.
__global__ void norms(const double* x, double* y, int n) {
    double sum = 0.0;
    for (int i = 0; i < n; ++i) sum += x[i * 32 + threadIdx.x] * x[i * 32 + threadIdx.x];
    y[threadIdx.x] = sqrt(sum) / (double)n;
}
__global__ void mix64(unsigned long long* x, int rounds) {
    unsigned long long v = x[threadIdx.x];
    for (int i = 0; i < rounds; ++i) {
        v ^= v >> 33;
        v *= 0xff51afd7ed558ccdull;
        v = v / 7 + v % 1000003;
    }
    x[threadIdx.x] = v;
}
