// Block reduction: a tree in shared memory, then shuffles in the last warp.
__device__ float warp_sum(float v) {
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_down_sync(0xffffffffu, v, offset);
    return v;
}

__global__ void __launch_bounds__(256) reduce_sum(const float* x, float* out, int n) {
    __shared__ float partial[256];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int s = 128; s >= 32; s >>= 1) {
        if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        sum = warp_sum(partial[threadIdx.x]);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

__global__ void reduce_max(const int* x, int* out, int n) {
    int best = -2147483647 - 1;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        best = max(best, x[i]);
    best = __reduce_max_sync(0xffffffffu, best);
    if (threadIdx.x % 32 == 0) atomicMax(out, best);
}
