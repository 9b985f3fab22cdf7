// Boxes of tensors of one to five axes, copied by TMA into shared memory and written out as they
// lie there; shares of a tile multicast to the blocks of a cluster.
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

struct Coordinates {
    int x, y, z, w, v;
};

__device__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ void init_barrier(unsigned barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "AGAIN:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra AGAIN;\n"
        "}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

#define LOAD "cp.async.bulk.tensor."
#define TILE ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"

template <int Rank>
__device__ void load(unsigned to, const TensorMap* map, Coordinates at, unsigned barrier) {
    if constexpr (Rank == 1)
        asm volatile(LOAD "1d" TILE " [%0], [%1, {%3}], [%2];" ::"r"(to), "l"(map), "r"(barrier),
                     "r"(at.x)
                     : "memory");
    if constexpr (Rank == 2)
        asm volatile(LOAD "2d" TILE " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map),
                     "r"(barrier), "r"(at.x), "r"(at.y)
                     : "memory");
    if constexpr (Rank == 3)
        asm volatile(LOAD "3d" TILE " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to), "l"(map),
                     "r"(barrier), "r"(at.x), "r"(at.y), "r"(at.z)
                     : "memory");
    if constexpr (Rank == 4)
        asm volatile(LOAD "4d" TILE " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to), "l"(map),
                     "r"(barrier), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w)
                     : "memory");
    if constexpr (Rank == 5)
        asm volatile(LOAD "5d" TILE " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to), "l"(map),
                     "r"(barrier), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "r"(at.v)
                     : "memory");
}

// out gets the bytes of the box. shift: where it lies in shared memory.
template <int Rank>
__device__ void copy(const TensorMap* map, Coordinates at, unsigned bytes, unsigned shift,
                     unsigned* out) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
        init_barrier(shared_address(&full));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(shared_address(&full), bytes);
        load<Rank>(shared_address(tile + shift), map, at, shared_address(&full));
    }
    wait(shared_address(&full), 0);
    const unsigned* words = reinterpret_cast<const unsigned*>(tile + shift);
    for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        out[i] = words[i];
}

#define COPY(RANK)                                                                                \
    extern "C" __global__ void copy_##RANK(const __grid_constant__ TensorMap map, Coordinates at, \
                                           unsigned bytes, unsigned shift, unsigned* out) {       \
        copy<RANK>(&map, at, bytes, shift, out);                                                  \
    }

COPY(1)
COPY(2)
COPY(3)
COPY(4)
COPY(5)

// The same by a map that lies in global memory, among others.
extern "C" __global__ void copy_by_pointer(const TensorMap* maps, int which, Coordinates at,
                                           unsigned bytes, unsigned* out) {
    copy<2>(maps + which, at, bytes, 0, out);
}

// Each block of a cluster copies its share of a tile of 2 * rows rows to all of them.
extern "C" __global__ void copy_to_cluster(const __grid_constant__ TensorMap map, int rows,
                                           unsigned bytes, unsigned* out) {
    extern __shared__ __align__(1024) unsigned char tile[];
    __shared__ unsigned long long full;
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        init_barrier(shared_address(&full));
        expect(shared_address(&full), 2 * bytes);
    }
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
    if (threadIdx.x == 0)
        asm volatile(LOAD "2d" TILE ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(
                         shared_address(tile + rank * bytes)),
                     "l"(&map), "r"(shared_address(&full)), "r"(0), "r"(int(rank) * rows),
                     "h"(static_cast<unsigned short>(3))
                     : "memory");
    wait(shared_address(&full), 0);
    unsigned* own = out + blockIdx.x * bytes / 2;
    for (unsigned i = threadIdx.x; i < bytes / 2; i += blockDim.x)
        own[i] = reinterpret_cast<const unsigned*>(tile)[i];
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
}

#define STORE "cp.async.bulk.tensor."
#define GROUP "d.global.shared::cta.tile.bulk_group"

template <int Rank>
__device__ void store(const TensorMap* map, Coordinates at, unsigned from) {
    if constexpr (Rank == 1)
        asm volatile(STORE "1" GROUP " [%0, {%2}], [%1];" ::"l"(map), "r"(from), "r"(at.x)
                     : "memory");
    if constexpr (Rank == 2)
        asm volatile(STORE "2" GROUP " [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from), "r"(at.x),
                     "r"(at.y)
                     : "memory");
    if constexpr (Rank == 3)
        asm volatile(STORE "3" GROUP " [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from), "r"(at.x),
                     "r"(at.y), "r"(at.z)
                     : "memory");
    if constexpr (Rank == 4)
        asm volatile(STORE "4" GROUP " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map), "r"(from),
                     "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w)
                     : "memory");
    if constexpr (Rank == 5)
        asm volatile(STORE "5" GROUP " [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map), "r"(from),
                     "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "r"(at.v)
                     : "memory");
}

// Threads write the box's bytes into shared memory as they are to lie there; TMA stores it.
template <int Rank>
__device__ void put(const TensorMap* map, Coordinates at, unsigned bytes, const unsigned* in) {
    extern __shared__ __align__(1024) unsigned char tile[];
    unsigned* words = reinterpret_cast<unsigned*>(tile);
    for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        words[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        store<Rank>(map, at, shared_address(tile));
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < bytes / 4) words[threadIdx.x] = 0;
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#define PUT(RANK)                                                                                \
    extern "C" __global__ void put_##RANK(const __grid_constant__ TensorMap map, Coordinates at, \
                                          unsigned bytes, const unsigned* in) {                  \
        put<RANK>(&map, at, bytes, in);                                                          \
    }

PUT(1)
PUT(2)
PUT(3)
PUT(4)
PUT(5)
