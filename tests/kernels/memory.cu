// Loads, stores and atomics with cache hints, policies, scopes and widths; address spaces.
__global__ void hints(const float4* in, float4* out, unsigned* p, int n) {
    unsigned long long policy, g = (unsigned long long)(in + threadIdx.x);
    float4 v, w;
    unsigned a, b = 0;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 0.5;" : "=l"(policy));
#define LOAD4(op, more) \
    asm volatile(op " {%0, %1, %2, %3}, [%4]" more ";" : "=f"(w.x), "=f"(w.y), "=f"(w.z), "=f"(w.w) : "l"(g), "l"(policy)); \
    v.x += w.x; v.y += w.y; v.z += w.z; v.w += w.w
    v = in[n];
    LOAD4("ld.global.nc.L1::no_allocate.L2::256B.v4.f32", "");
    LOAD4("ld.global.L1::evict_last.L2::128B.v4.f32", "");
    LOAD4("ld.global.L2::cache_hint.v4.f32", ", %5");
    LOAD4("ld.volatile.v4.f32", "");
    LOAD4("ld.v4.f32", "");
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(a) : "l"(p));
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(b) : "l"(p + n));
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(a));
    asm volatile("st.global.L1::no_allocate.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(out + n), "f"(v.x));
    asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(p + 7), "f"(v.y), "l"(policy));
    asm volatile("prefetch.global.L1 [%0];" ::"l"(g));
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(g));
    asm volatile("prefetch.L2 [%0];" ::"l"(g + 128));
    asm volatile("prefetchu.L1 [%0];" ::"l"(g));
    asm volatile("discard.global.L2 [%0], 128;" ::"l"(p));
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(p));
    asm volatile("{.reg .pred q; isspacep.shared q, %1; selp.u32 %0, 1, 0, q;}" : "=r"(a) : "l"(p));
    asm volatile("{.reg .pred q; isspacep.global q, %1; selp.u32 %0, 1, %0, q;}" : "+r"(a) : "l"(p));
    asm volatile("{.reg .pred q; isspacep.local q, %1; selp.u32 %0, 1, %0, q;}" : "+r"(a) : "l"(p));
    asm volatile("cvta.to.shared.u64 %0, %0;" : "+l"(policy));
    p[n] = a + b + (unsigned)policy;
    out[threadIdx.x] = v;
}
__global__ void atomic_kinds(unsigned* p, float* f, double* d, unsigned long long* l, unsigned v) {
    __shared__ unsigned s[32];
    __shared__ unsigned long long t[4];
    unsigned r;
    unsigned long long w;
    s[threadIdx.x] = v, t[0] = v;
    __syncthreads();
    r = atomicAdd(p, v) + atomicExch(p + 1, v) + atomicMin((int*)p + 2, v) + atomicInc(p + 3, v);
    r += atomicAnd(&s[v], 3) + atomicCAS(&s[1], v, 4) + atomicExch(&s[2], v) + atomicDec(&s[3], v);
    r += atomicCAS(p + 4, v, r) + (unsigned)atomicCAS(l, 1ull, 2ull) + (unsigned)atomicAdd(f, 1.0f);
    r += (unsigned)atomicAdd(d, 1.0) + (unsigned)atomicMax(l + 1, 5ull) + (unsigned)atomicAdd(&t[0], 1ull);
    r += (unsigned)atomicCAS(&t[1], 1ull, (unsigned long long)v);
    atomicAdd(&s[5], 1u);
    atomicOr(p + 5, v), atomicAdd(f + 1, 2.0f), atomicAdd(d + 1, 2.0), atomicAdd(l + 2, 3ull);
    asm volatile("atom.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(p + r), "r"(v));
    asm volatile("atom.cas.b32 %0, [%1], %2, %3;" : "=r"(r) : "l"(p + r), "r"(v), "r"(r));
    asm volatile("red.relaxed.sys.global.max.s32 [%0], %1;" ::"l"(p + 8), "r"(r));
    asm volatile("red.add.f32 [%0], %1;" ::"l"(f + 8), "f"(1.5f));
    asm volatile("atom.global.add.noftz.f16x2 %0, [%1], %2;" : "=r"(r) : "l"(p + 9), "r"(r));
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(p + 10), "r"(r));
    asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;" : "=h"(*(short*)&w) : "l"(p), "h"((short)r), "h"((short)v));
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b128 x, y; mov.b128 x, {%0, %0}; mov.b128 y, {%0, %1};"
                 "atom.global.cas.b128 x, [%1], x, y; atom.global.exch.b128 y, [%1], x;"
                 "mov.b128 {%0, %0}, y;}" : "+l"(w) : "l"(l));
    asm volatile("red.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(f), "f"(3.0f));
    asm volatile("atom.global.add.v2.f32 {%0, %1}, [%2], {%1, %1};" : "+f"(f[20]), "+f"(f[21]) : "l"(f));
    asm volatile("red.global.add.noftz.v2.bf16x2 [%0], {%1, %1};" ::"l"(f), "r"(r));
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %0, %1}, [%2];" : "=f"(f[30]), "=f"(f[31]) : "l"(f));
    asm volatile("multimem.st.relaxed.sys.global.f32 [%0], %1;" ::"l"(f), "f"(1.0f));
    asm volatile("multimem.red.relaxed.sys.global.add.f32 [%0], %1;" ::"l"(f), "f"(1.0f));
#endif
    p[31] = r + (unsigned)w;
}
__constant__ int table[64];
__global__ void constants(int* out, int n) {
    extern __shared__ short shorts[];
    out[threadIdx.x] = table[n] + table[threadIdx.x & 63] + shorts[n] + shorts[threadIdx.x];
}
