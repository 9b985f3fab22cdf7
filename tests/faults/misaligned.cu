// Vectors of four that begin at the second element.
__global__ void copy(const float* in, float4* out) {
#ifdef FIXED
    const float4* vectors = reinterpret_cast<const float4*>(in);
#else
    const float4* vectors = reinterpret_cast<const float4*>(in + 1);
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = vectors[i];  // FAULT
}
