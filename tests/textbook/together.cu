// Threads and blocks that work together: dynamic shared memory, named barriers, locks, the last block,
// copies that run beside the arithmetic.
__global__ void reverse_pairs(const double* values, const int* keys, double* values_out,
                              int* keys_out, int n) {
    extern __shared__ double memory[];
    double* held_values = memory;
    int* held_keys = (int*)(memory + blockDim.x);
    int first = blockIdx.x * blockDim.x;
    int count = min((int)blockDim.x, n - first);
    int t = threadIdx.x;
    if (t < count) {
        held_values[t] = values[first + t];
        held_keys[t] = keys[first + t];
    }
    __syncthreads();
    if (t < count) {
        values_out[first + t] = held_values[count - 1 - t];
        keys_out[first + t] = held_keys[count - 1 - t];
    }
}

__device__ void barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ void barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#define CONSUMERS 96

// The first warp fills two buffers in turn; three warps empty them.
__global__ void producer_consumer(const int* in, int* out, int tiles) {
    __shared__ int buffer[2][CONSUMERS];
    const int threads = CONSUMERS + 32;
    in += blockIdx.x * tiles * CONSUMERS;
    if (threadIdx.x < 32) {
        for (int tile = 0; tile < tiles; ++tile) {
            int b = tile % 2;
            barrier_sync(3 + b, threads);
            for (int i = threadIdx.x; i < CONSUMERS; i += 32)
                buffer[b][i] = in[tile * CONSUMERS + i];
            __threadfence_block();
            barrier_arrive(1 + b, threads);
        }
    } else {
        int t = threadIdx.x - 32;
        int sum = 0;
        barrier_arrive(3, threads);
        if (tiles > 1) barrier_arrive(4, threads);
        for (int tile = 0; tile < tiles; ++tile) {
            int b = tile % 2;
            barrier_sync(1 + b, threads);
            sum = sum * 3 + buffer[b][CONSUMERS - 1 - t];
            if (tile + 2 < tiles) barrier_arrive(3 + b, threads);
        }
        out[blockIdx.x * CONSUMERS + t] = sum;
    }
}

struct Account {
    int lock;
    int best;
    int owner;
    int visits;
};

__global__ void lock_per_block(volatile Account* account, const int* bids) {
    if (threadIdx.x != 0) return;
    while (atomicCAS((int*)&account->lock, 0, 1) != 0) {
    }
    __threadfence();
    account->visits = account->visits + 1;
    if (bids[blockIdx.x] > account->best) {
        account->best = bids[blockIdx.x];
        account->owner = blockIdx.x;
    }
    __threadfence();
    atomicExch((int*)&account->lock, 0);
}

__global__ void lock_per_thread(int* lock, volatile long long* total, const int* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool done = i >= n;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *total = *total + values[i];
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

__device__ unsigned finished = 0;

__global__ void last_block(const float* in, volatile float* partial, float* out, int n) {
    __shared__ float cache[64];
    __shared__ bool is_last;
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += blockDim.x * gridDim.x) sum += in[i];
    cache[t] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s) cache[t] += cache[t + s];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = cache[0];
        __threadfence();
        unsigned place = atomicInc(&finished, gridDim.x - 1);
        is_last = place == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && t == 0) {
        float total = 0.0f;
        for (int b = 0; b < gridDim.x; ++b) total += partial[b];
        *out = total;
    }
}

#define CHUNK 64

__device__ void copy_async(float4* shared, const float4* global) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

// Three chunks are under way while one is summed up.
__global__ void copy_pipeline(const float4* in, float* out, int chunks) {
    __shared__ float4 stages[4][CHUNK];
    int t = threadIdx.x;
    in += blockIdx.x * chunks * CHUNK;
    for (int c = 0; c < 3; ++c) {
        if (c < chunks) copy_async(&stages[c][t], &in[c * CHUNK + t]);
        asm volatile("cp.async.commit_group;");
    }
    float sum = 0.0f;
    for (int c = 0; c < chunks; ++c) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        float4 v = stages[c % 4][CHUNK - 1 - t];
        sum += v.x + v.y + v.z + v.w;
        if (c + 3 < chunks) copy_async(&stages[(c + 3) % 4][t], &in[(c + 3) * CHUNK + t]);
        asm volatile("cp.async.commit_group;");
    }
    out[blockIdx.x * CHUNK + t] = sum;
}
