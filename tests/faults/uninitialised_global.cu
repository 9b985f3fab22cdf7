// The first kernel leaves out the last element, and the second reads it.
__global__ void produce(int* data, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef FIXED
    if (i < n) data[i] = i;
#else
    if (i < n - 1) data[i] = i;
#endif
}

__global__ void consume(const int* data, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int value = data[i];  // FAULT
        out[i] = 2 * value;
    }
}
