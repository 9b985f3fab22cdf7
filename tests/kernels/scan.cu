// Inclusive scan of a block (Hillis and Steele), and an exclusive scan of a warp.
__global__ void scan_block(const int* in, int* out, int n) {
    __shared__ int buffer[2][512];
    int t = threadIdx.x, i = blockIdx.x * 512 + t, now = 0;
    buffer[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int d = 1; d < 512; d *= 2) {
        buffer[now ^ 1][t] = buffer[now][t] + (t >= d ? buffer[now][t - d] : 0);
        now ^= 1;
        __syncthreads();
    }
    if (i < n) out[i] = buffer[now][t];
}

__global__ void scan_warp(unsigned* data) {
    unsigned value = data[threadIdx.x], lane = threadIdx.x % 32, sum = value;
    for (int d = 1; d < 32; d *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    data[threadIdx.x] = sum - value;
}
