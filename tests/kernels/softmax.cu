// Softmax of a row per warp: maximum, exponentials, sum, division.
__global__ void softmax(const float* in, float* out, int cols) {
    const float* row = in + (size_t)blockIdx.x * cols;
    float best = -1e30f, sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) best = fmaxf(best, row[c]);
    for (int d = 16; d; d /= 2) best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, d));
    for (int c = threadIdx.x; c < cols; c += 32) sum += expf(row[c] - best);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    for (int c = threadIdx.x; c < cols; c += 32)
        out[(size_t)blockIdx.x * cols + c] = expf(row[c] - best) / sum;
}
