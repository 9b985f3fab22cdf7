// One thread of one block, the last of both, reads too far.
__global__ void copy(const int* in, int* out, int n) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    int i = block * blockDim.x * blockDim.y * blockDim.z + thread;
#ifdef FIXED
    int from = min(i, n - 1);
#else
    int from = i < n - 1 ? i : n;
#endif
    int value = in[from];  // FAULT
    out[i] = value;
}
