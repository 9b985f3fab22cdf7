// A function that is not inlined, recursion through it, a function pointer, a switch.
__device__ __noinline__ float step(float v, int depth) {
    return depth ? step(v * 0.5f, depth - 1) + 1.0f : v;
}
__device__ float twice(float v) { return 2 * v; }
__device__ float square(float v) { return v * v; }
__global__ void calls(float* x, int depth, int which) {
    float (*function)(float) = which ? twice : square;
    float v = function(step(x[threadIdx.x], depth));
    switch (which) {
        case 0: v += 1; break;
        case 1: v *= 3; break;
        case 2: v = sqrtf(v); break;
        case 3: v = -v; break;
        case 4: v = v / 3; break;
        case 5: v = fabsf(v); break;
        case 6: v = 1 / v; break;
        default: v = 0;
    }
    x[threadIdx.x] = v;
}
