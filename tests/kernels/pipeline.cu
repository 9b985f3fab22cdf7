// Asynchronous copies with groups, in the spelling of PTX.
__global__ void pipeline(const float4* in, float* out, int n) {
    __shared__ float4 stage[4][128];
    unsigned base = (unsigned)__cvta_generic_to_shared(&stage[0][threadIdx.x]);
    for (int s = 0; s < 3; ++s) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + s * 2048),
                     "l"(in + s * 128 + threadIdx.x));
        asm volatile("cp.async.commit_group;");
    }
    float sum = 0.0f;
    for (int s = 0; s < n; ++s) {
        asm volatile("cp.async.wait_group 2;");
        __syncthreads();
        float4 v = stage[s % 4][threadIdx.x ^ 1];
        sum += v.x + v.y + v.z + v.w;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(base + (s + 3) % 4 * 2048),
                     "l"(in + (s + 3) * 128 + threadIdx.x));
        asm volatile("cp.async.commit_group;");
    }
    out[threadIdx.x] = sum;
}
