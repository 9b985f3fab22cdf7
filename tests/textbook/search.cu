// A search for bytes, a binary search, pointers followed through memory, counters shared by a warp.
__global__ void find_bytes(const char* text, int length, const char* pattern, int size, int* first,
                           int* count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + size > length) return;
    for (int j = 0; j < size; ++j)
        if (text[i + j] != pattern[j]) return;
    atomicMin(first, i);
    atomicAdd(count, 1);
}

__global__ void lower_bound(const float* sorted, int n, const float* keys, int* places, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= m) return;
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (sorted[middle] < keys[i])
            low = middle + 1;
        else
            high = middle;
    }
    places[i] = low;
}

struct Node {
    Node* next;
    int value;
};

__global__ void link_nodes(Node* nodes, const int* next, const int* values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    nodes[i].next = next[i] < 0 ? nullptr : nodes + next[i];
    nodes[i].value = values[i];
}

__global__ void list_sums(const Node* nodes, const int* heads, int* sums, int* lengths, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int sum = 0, length = 0;
    for (const Node* node = nodes + heads[i]; node != nullptr; node = node->next) {
        sum += node->value;
        ++length;
    }
    sums[i] = sum;
    lengths[i] = length;
}

// Those lanes that want a place take them together: one atomic per warp.
__device__ int take_place(int* counter) {
    unsigned active = __activemask();
    int leader = __ffs(active) - 1;
    int lane = threadIdx.x % 32;
    int first = 0;
    if (lane == leader) first = atomicAdd(counter, __popc(active));
    first = __shfl_sync(active, first, leader);
    return first + __popc(active & ((1u << lane) - 1));
}

__global__ void filter_positive(const int* in, int* out, int* counter, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] > 0) out[take_place(counter)] = in[i];
}

__global__ void count_by_key(const unsigned char* keys, int* counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned active = __activemask();
    unsigned peers = __match_any_sync(active, keys[i]);
    if (threadIdx.x % 32 == __ffs(peers) - 1) atomicAdd(&counts[keys[i]], __popc(peers));
}
