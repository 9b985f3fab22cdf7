// Softmax of the rows of a matrix: a block per row in three passes, and a warp per row in one and a half.
#include <cuda_runtime.h>
#include <math_constants.h>

__global__ void softmax_block(const float* in, float* out, int columns) {
    __shared__ float cache[64];
    const float* row = in + blockIdx.x * columns;
    int t = threadIdx.x;
    float largest = -CUDART_INF_F;
    for (int c = t; c < columns; c += blockDim.x) largest = fmaxf(largest, row[c]);
    cache[t] = largest;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) cache[t] = fmaxf(cache[t], cache[t + s]);
        __syncthreads();
    }
    largest = cache[0];
    __syncthreads();
    float sum = 0.0f;
    for (int c = t; c < columns; c += blockDim.x) sum += expf(row[c] - largest);
    cache[t] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) cache[t] += cache[t + s];
        __syncthreads();
    }
    sum = cache[0];
    for (int c = t; c < columns; c += blockDim.x)
        out[blockIdx.x * columns + c] = expf(row[c] - largest) / sum;
}

__global__ void softmax_online(const float* in, float* out, int rows, int columns) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    in += row * columns;
    out += row * columns;
    float largest = -CUDART_INF_F, sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 32) {
        float value = in[c];
        float next = fmaxf(largest, value);
        sum = sum * __expf(largest - next) + __expf(value - next);
        largest = next;
    }
    for (int mask = 16; mask > 0; mask >>= 1) {
        float other_largest = __shfl_xor_sync(0xffffffff, largest, mask);
        float other_sum = __shfl_xor_sync(0xffffffff, sum, mask);
        float next = fmaxf(largest, other_largest);
        sum = sum * __expf(largest - next) + other_sum * __expf(other_largest - next);
        largest = next;
    }
    float scale = 1.0f / sum;
    for (int c = threadIdx.x; c < columns; c += 32) out[c] = __expf(in[c] - largest) * scale;
}
