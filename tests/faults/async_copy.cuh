// Asynchronous copies in PTX's spelling.
__device__ void copy_async(int4* shared, const int4* global) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}

__device__ void commit_group() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
__device__ void wait_group() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
