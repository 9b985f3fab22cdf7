// The barrier waits for more threads than ever come to it.
#ifdef FIXED
#define COMING 64
#else
#define COMING 96
#endif

__global__ void exchange(const int* in, int* out) {
    __shared__ int tile[64];
    int t = threadIdx.x;
    if (t < 64) {
        tile[t] = in[t];
        asm volatile("bar.sync 1, %0;" ::"n"(COMING) : "memory");  // FAULT
        out[t] = tile[63 - t];
    }
}
