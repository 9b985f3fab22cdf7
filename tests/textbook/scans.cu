// Prefix sums: Hillis and Steele's, Blelloch's, one by shuffles, and one in a single pass over memory.
__global__ void scan_hillis_steele(const int* in, int* out, int n) {
    extern __shared__ int buffers[];
    int t = threadIdx.x;
    int i = blockIdx.x * blockDim.x + t;
    int source = 0, target = 1;
    buffers[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        int value = buffers[source * blockDim.x + t];
        if (t >= offset) value += buffers[source * blockDim.x + t - offset];
        buffers[target * blockDim.x + t] = value;
        source = 1 - source;
        target = 1 - target;
        __syncthreads();
    }
    if (i < n) out[i] = buffers[source * blockDim.x + t];
}

#define PADDED(index) ((index) + (index) / 32)

__global__ void scan_blelloch(const unsigned* in, unsigned* out, unsigned* totals, int n) {
    __shared__ unsigned tree[PADDED(256)];
    int t = threadIdx.x;
    int first = blockIdx.x * 256 + t, second = first + 128;
    tree[PADDED(t)] = first < n ? in[first] : 0;
    tree[PADDED(t + 128)] = second < n ? in[second] : 0;
    int offset = 1;
    for (int active = 128; active > 0; active >>= 1) {
        __syncthreads();
        if (t < active) {
            int left = PADDED(offset * (2 * t + 1) - 1), right = PADDED(offset * (2 * t + 2) - 1);
            tree[right] += tree[left];
        }
        offset *= 2;
    }
    __syncthreads();
    if (t == 0) {
        totals[blockIdx.x] = tree[PADDED(255)];
        tree[PADDED(255)] = 0;
    }
    for (int active = 1; active < 256; active *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < active) {
            int left = PADDED(offset * (2 * t + 1) - 1), right = PADDED(offset * (2 * t + 2) - 1);
            unsigned moved = tree[left];
            tree[left] = tree[right];
            tree[right] += moved;
        }
    }
    __syncthreads();
    if (first < n) out[first] = tree[PADDED(t)];
    if (second < n) out[second] = tree[PADDED(t + 128)];
}

__global__ void scan_shuffle(const int* in, int* out, int n) {
    __shared__ int warp_totals[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = i < n ? in[i] : 0;
    for (int offset = 1; offset < 32; offset <<= 1) {
        int other = __shfl_up_sync(0xffffffff, value, offset);
        if (lane >= offset) value += other;
    }
    if (lane == 31) warp_totals[warp] = value;
    __syncthreads();
    if (warp == 0) {
        int total = lane < blockDim.x / 32 ? warp_totals[lane] : 0;
        for (int offset = 1; offset < 32; offset <<= 1) {
            int other = __shfl_up_sync(0xffffffff, total, offset);
            if (lane >= offset) total += other;
        }
        warp_totals[lane] = total;
    }
    __syncthreads();
    if (warp > 0) value += warp_totals[warp - 1];
    if (i < n) out[i] = value;
}

enum { EMPTY, AGGREGATE, PREFIX };

// Each block publishes its total, then walks back over its predecessors until one knows its prefix.
__global__ void scan_lookback(const unsigned* in, unsigned* out, int n, unsigned* ticket,
                              volatile int* state, volatile unsigned* aggregate,
                              volatile unsigned* prefix) {
    __shared__ unsigned tile[128];
    __shared__ int part;
    __shared__ unsigned before;
    int t = threadIdx.x;
    if (t == 0) part = atomicAdd(ticket, 1);
    __syncthreads();
    int mine = part;
    int i = mine * blockDim.x + t;
    tile[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        unsigned other = t >= offset ? tile[t - offset] : 0;
        __syncthreads();
        tile[t] += other;
        __syncthreads();
    }
    if (t == blockDim.x - 1) {
        unsigned sum = 0;
        if (mine > 0) {
            aggregate[mine] = tile[t];
            __threadfence();
            state[mine] = AGGREGATE;
        }
        for (int p = mine - 1; p >= 0; --p) {
            int seen;
            do seen = state[p];
            while (seen == EMPTY);
            __threadfence();
            if (seen == PREFIX) {
                sum += prefix[p];
                break;
            }
            sum += aggregate[p];
        }
        prefix[mine] = sum + tile[t];
        __threadfence();
        state[mine] = PREFIX;
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = before + tile[t];
}
