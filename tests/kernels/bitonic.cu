// Bitonic sort of a block in shared memory: nested loops with barriers.
__global__ void bitonic(int* data) {
    __shared__ int s[1024];
    int t = threadIdx.x;
    s[t] = data[blockIdx.x * 1024 + t];
    __syncthreads();
    for (int k = 2; k <= 1024; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int other = t ^ j;
            if (other > t) {
                int a = s[t], b = s[other];
                if ((a > b) == ((t & k) == 0)) s[t] = b, s[other] = a;
            }
            __syncthreads();
        }
    data[blockIdx.x * 1024 + t] = s[t];
}
