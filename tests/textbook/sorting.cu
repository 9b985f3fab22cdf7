// A bitonic sort of tiles, and a stable pass of a radix sort by ballots.
__global__ void bitonic_sort(int* data, int n) {
    __shared__ int keys[256];
    int t = threadIdx.x;
    int i = blockIdx.x * 256 + t;
    keys[t] = i < n ? data[i] : 0x7fffffff;
    __syncthreads();
    for (int size = 2; size <= 256; size <<= 1)
        for (int stride = size >> 1; stride > 0; stride >>= 1) {
            int partner = t ^ stride;
            if (partner > t) {
                bool ascending = (t & size) == 0;
                int a = keys[t], b = keys[partner];
                if ((a > b) == ascending) {
                    keys[t] = b;
                    keys[partner] = a;
                }
            }
            __syncthreads();
        }
    if (i < n) data[i] = keys[t];
}

#define THREADS 128
#define WARPS (THREADS / 32)

// Sorts each tile by the digit of `bits` bits from `shift` on, one bit at a time.
__global__ void radix_pass(unsigned* data, int shift, int bits) {
    __shared__ unsigned tile[THREADS];
    __shared__ int zeros[WARPS];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    unsigned key = data[blockIdx.x * THREADS + t];
    for (int bit = shift; bit < shift + bits; ++bit) {
        bool one = (key >> bit) & 1;
        unsigned ballot = __ballot_sync(0xffffffff, !one);
        if (lane == 0) zeros[warp] = __popc(ballot);
        __syncthreads();
        int before = 0, total = 0;
        for (int w = 0; w < WARPS; ++w) {
            if (w < warp) before += zeros[w];
            total += zeros[w];
        }
        before += __popc(ballot & ((1u << lane) - 1));
        int rank = one ? total + t - before : before;
        tile[rank] = key;
        __syncthreads();
        key = tile[t];
    }
    data[blockIdx.x * THREADS + t] = key;
}
