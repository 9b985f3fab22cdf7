// Sums of an array: a tree with strided threads, a tree with neighbouring threads, shuffles, atomics,
// and the barriers that count.
__global__ void reduce_interleaved(const int* in, int* out, int n) {
    extern __shared__ int cache[];
    unsigned t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    cache[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (t % (2 * s) == 0 && t + s < blockDim.x) cache[t] += cache[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = cache[0];
}

__global__ void reduce_sequential(const float* in, float* out, int n) {
    __shared__ float cache[128];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    cache[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) cache[t] += cache[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = cache[0];
}

__inline__ __device__ float warp_sum(float value) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffff, value, offset);
    return value;
}

__global__ void reduce_shuffle(const float* in, float* out, int n) {
    __shared__ float sums[32];
    int lane = threadIdx.x % warpSize;
    int warp = threadIdx.x / warpSize;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = threadIdx.x < blockDim.x / warpSize ? sums[lane] : 0.0f;
    if (warp == 0) sum = warp_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void reduce_atomic(const int* in, int* sum, int* smallest, int* largest,
                              unsigned long long* squares, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int value = in[i];
    atomicAdd(sum, value);
    atomicMin(smallest, value);
    atomicMax(largest, value);
    atomicAdd(squares, (unsigned long long)((long long)value * value));
}

__global__ void block_votes(const int* in, int* positive, int* any_zero, int* all_small, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = i < n ? in[i] : -1;
    int count = __syncthreads_count(value > 0);
    int any = __syncthreads_or(value == 0);
    int all = __syncthreads_and(value < 95);
    if (threadIdx.x == 0) {
        positive[blockIdx.x] = count;
        any_zero[blockIdx.x] = any != 0;
        all_small[blockIdx.x] = all != 0;
    }
}
