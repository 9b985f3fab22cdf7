// Layer normalisation: a block per row, mean and variance in two reductions.
__device__ float block_sum(float value, float* cache) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(~0u, value, offset);
    if (threadIdx.x % 32 == 0) cache[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += cache[warp];
    __syncthreads();
    return sum;
}

__global__ void layer_norm(const float* __restrict__ in, const float* __restrict__ gamma,
                           const float* __restrict__ beta, float* __restrict__ out, int columns,
                           float epsilon) {
    __shared__ float cache[32];
    const float* x = in + blockIdx.x * columns;
    float* y = out + blockIdx.x * columns;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[c];
    float mean = block_sum(sum, cache) / columns;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float d = x[c] - mean;
        squares += d * d;
    }
    float scale = rsqrtf(block_sum(squares, cache) / columns + epsilon);
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        y[c] = (x[c] - mean) * scale * gamma[c] + beta[c];
}
