// A local array with a run-time index: stack, but no spill.
__global__ void digits(const unsigned* in, unsigned* out, int base) {
    unsigned count[64];
    for (int i = 0; i < 64; ++i) count[i] = i;
    unsigned v = in[threadIdx.x];
    while (v) {
        count[v % 64] += count[v / base % 64];
        v /= base;
    }
    unsigned best = 0;
    for (int i = 0; i < 64; ++i) best = max(best, count[i]);
    out[threadIdx.x] = best;
}
