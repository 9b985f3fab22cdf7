// Atomics of many kinds and a histogram in shared memory.
__global__ void histogram(const unsigned char* data, int n, unsigned* bins) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
__global__ void locks(int* lock, unsigned long long* counter, float* best, double* total) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    *best = fmaxf(*best, (float)threadIdx.x);
    __threadfence();
    atomicExch(lock, 0);
    atomicAdd(counter, 3ull);
    atomicAdd(total, 0.5);
    atomicOr((int*)counter, 8);
}
