// Histograms of bytes: one private copy per block, then one per warp.
__global__ void histogram_block(const unsigned char* data, int n, unsigned* histogram) {
    __shared__ unsigned bins[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) bins[b] = 0;
    __syncthreads();
    int stride = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        atomicAdd(&bins[data[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x) atomicAdd(&histogram[b], bins[b]);
}

#define WARPS 4

__global__ void histogram_warps(const uchar4* data, int n, unsigned* histogram) {
    __shared__ unsigned bins[WARPS][64];
    for (int b = threadIdx.x; b < WARPS * 64; b += blockDim.x) (&bins[0][0])[b] = 0;
    __syncthreads();
    unsigned* own = bins[threadIdx.x / 32];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        uchar4 four = data[i];
        atomicAdd(own + (four.x >> 2), 1u);
        atomicAdd(own + (four.y >> 2), 1u);
        atomicAdd(own + (four.z >> 2), 1u);
        atomicAdd(own + (four.w >> 2), 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 64; b += blockDim.x) {
        unsigned sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += bins[w][b];
        if (sum > 0) atomicAdd(&histogram[b], sum);
    }
}
