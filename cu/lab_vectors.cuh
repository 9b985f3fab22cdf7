// Vectors of one, two and four words in experiments that do little but load.
#pragma once

namespace lowgemm {

__device__ __forceinline__ unsigned sum_of(unsigned v) {
    return v;
}

__device__ __forceinline__ unsigned sum_of(uint2 v) {
    return v.x + v.y;
}

__device__ __forceinline__ unsigned sum_of(uint4 v) {
    return v.x + v.y + (v.z + v.w);
}

__device__ __forceinline__ unsigned shared_address(const void* place) {
    return static_cast<unsigned>(__cvta_generic_to_shared(place));
}

// A load from shared memory that the compiler must make each time: what nobody has written in the
// meantime it would otherwise keep in a register. The machine code is the same LDS.
__device__ __forceinline__ void load_again(float& v, const float* place) {
    asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(v) : "r"(shared_address(place)));
}

__device__ __forceinline__ void load_again(float2& v, const float* place) {
    asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "r"(shared_address(place)));
}

__device__ __forceinline__ void load_again(float4& v, const float* place) {
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(shared_address(place)));
}

__device__ __forceinline__ void load_again(unsigned& v, const unsigned* place) {
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(v) : "r"(shared_address(place)));
}

__device__ __forceinline__ void load_again(uint2& v, const unsigned* place) {
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "r"(shared_address(place)));
}

__device__ __forceinline__ void load_again(uint4& v, const unsigned* place) {
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared_address(place)));
}

}  // namespace lowgemm
