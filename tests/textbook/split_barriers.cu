// A barrier in two halves: arrive, work, wait for the phase that the arrival was in.
#include <cuda_awbarrier_primitives.h>

// Each block smooths its values over and over; a thread looks at its neighbours of the round before.
__global__ void smooth_ring(const float* in, float* out, int rounds) {
    __shared__ float value[2][64];
    __shared__ __mbarrier_t barrier;
    int t = threadIdx.x, n = blockDim.x;
    if (t == 0) __mbarrier_init(&barrier, n);
    __syncthreads();
    float mine = in[blockIdx.x * n + t];
    for (int round = 0; round < rounds; round++) {
        value[round % 2][t] = mine;
        __mbarrier_token_t token = __mbarrier_arrive(&barrier);
        float half = 0.5f * mine;
        while (!__mbarrier_test_wait(&barrier, token)) {
        }
        float left = value[round % 2][(t + n - 1) % n], right = value[round % 2][(t + 1) % n];
        mine = half + 0.25f * (left + right);
    }
    out[blockIdx.x * n + t] = mine;
}

// Threads leave one round after the other; who is left counts them.
__global__ void leave_one_by_one(int* out) {
    __shared__ int present;
    __shared__ __mbarrier_t barrier;
    int t = threadIdx.x;
    if (t == 0) {
        __mbarrier_init(&barrier, blockDim.x);
        present = 0;
    }
    __syncthreads();
    for (int round = 0; round < blockDim.x; round++) {
        atomicAdd(&present, 1);
        if (t == round) {
            __mbarrier_arrive_and_drop(&barrier);
            return;
        }
        __mbarrier_token_t token = __mbarrier_arrive(&barrier);
        while (!__mbarrier_test_wait(&barrier, token)) {
        }
        if (t == round + 1) out[round] = atomicAdd(&present, 0);
        token = __mbarrier_arrive(&barrier);
        while (!__mbarrier_test_wait(&barrier, token)) {
        }
    }
}
