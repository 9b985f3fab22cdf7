// A shuffle inside a loop whose length differs between the lanes of a warp, and byte-wide predicates.
__global__ void divergent(int* x, int n) {
    for (int r = threadIdx.x; r < n; r++) {
        int v = x[r];
        for (int o = 16; o; o >>= 1) v += __shfl_down_sync(~0u, v, o);
        x[r] = v;
    }
}
__global__ void shuffle_by(int* x, int distance) {
    int v = x[threadIdx.x];
    for (int i = 0; i < 4; ++i) v += __shfl_up_sync(~0u, v, distance + i);
    x[threadIdx.x] = v;
}
// Branches of an int64 selection, compare-and-swap in shared memory, counts over a block.
__global__ void selects(const long long* a, long long* b, int n) {
    long long x = a[threadIdx.x], y = a[threadIdx.x + 32];
    b[threadIdx.x] = x < y ? x * 3 : y;
    b[threadIdx.x + 64] = n > 3 ? x : y;
}
__global__ void swaps(int* out) {
    __shared__ int s;
    __shared__ float f;
    if (threadIdx.x == 0) s = 0, f = 0;
    __syncthreads();
    atomicCAS(&s, 0, (int)threadIdx.x);
    atomicAdd(&f, 1.5f);
    __syncthreads();
    out[0] = s + f + __syncthreads_count(s > 1);
}
struct alignas(32) Eight {
    float of[8];
};
__global__ void copy8(const Eight* in, Eight* out) { out[threadIdx.x] = in[threadIdx.x]; }
