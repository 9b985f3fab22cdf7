// All pairs with a shared tile of float4 positions.
__global__ void nbody(const float4* position, float4* force, int n) {
    __shared__ float4 tile[256];
    float4 me = position[blockIdx.x * 256 + threadIdx.x];
    float fx = 0, fy = 0, fz = 0;
    for (int base = 0; base < n; base += 256) {
        tile[threadIdx.x] = position[base + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 256; ++j) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-6f);
            float scale = tile[j].w * inverse * inverse * inverse;
            fx += dx * scale;
            fy += dy * scale;
            fz += dz * scale;
        }
        __syncthreads();
    }
    force[blockIdx.x * 256 + threadIdx.x] = make_float4(fx, fy, fz, 0);
}
