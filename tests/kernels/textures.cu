// Textures and surfaces, by handle: fetches, gathers, gradients, levels, queries, atomics.
using handle = unsigned long long;
__global__ void textures(handle t, float4* out, float x, float y, float z, int i) {
    float4 v[12];
    v[0] = tex1D<float4>(t, x);
    v[1] = tex2D<float4>(t, x, y);
    v[2] = tex3D<float4>(t, x, y, z);
    v[3] = tex2DLod<float4>(t, x, y, z);
    v[4] = tex2DLayered<float4>(t, x, y, i);
    v[5] = texCubemap<float4>(t, x, y, z);
    v[6] = tex2Dgather<float4>(t, x, y, 2);
    v[7] = tex1Dfetch<float4>(t, i);
    v[8] = tex2DGrad<float4>(t, x, y, make_float2(y, z), make_float2(z, x));
    v[9] = tex3DGrad<float4>(t, x, y, z, make_float4(y, z, x, 0), make_float4(z, x, y, 0));
    v[10].x = tex2D<float>(t, x + threadIdx.x, y);
    v[11].x = tex1DLayered<float>(t, x, i);
    for (int n = 0; n < 12; ++n) out[n * 32 + threadIdx.x] = v[n];
}
__global__ void texture_queries(handle t, handle s, int* out) {
    asm volatile("txq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(t));
    asm volatile("txq.num_mipmap_levels.b32 %0, [%1];" : "=r"(out[1]) : "l"(t));
    asm volatile("suq.height.b32 %0, [%1];" : "=r"(out[2]) : "l"(s));
    asm volatile("{.reg .b32 r, p; tld4.g.2d.v4.s32.f32 {%0, r, p, p}, [%1, {%2, %2}], {r, r};}"
                 : "=r"(out[3]) : "l"(t), "f"(1.5f));
}
__global__ void surfaces(handle s, float4* out, int x, int y, int z) {
    surf1Dwrite(1.0f, s, x * 4);
    surf2Dwrite(make_float4(1, 2, 3, 4), s, x * 16, y);
    surf3Dwrite((short)x, s, x * 2, y, z);
    float4 v = surf2Dread<float4>(s, x * 16 + threadIdx.x, y);
    v.x += surf1Dread<float>(s, x * 4) + surf2DLayeredread<float>(s, x * 4, y, z);
    asm volatile("sured.b.add.2d.u32.clamp [%0, {%1, %2}], %3;" ::"l"(s), "r"(x), "r"(y), "r"(z));
    asm volatile("sust.p.2d.v4.b32.trap [%0, {%1, %2}], {%3, %3, %3, %3};" ::"l"(s), "r"(x),
                 "r"(y), "f"(v.y));
    out[threadIdx.x] = v;
}
