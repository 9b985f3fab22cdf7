// Functions that are called: recursion, pointers to functions, a virtual function, a jump table.
__device__ __noinline__ int fibonacci(int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__device__ __noinline__ unsigned gcd(unsigned a, unsigned b) {
    return b == 0 ? a : gcd(b, a % b);
}

__global__ void recursion(const int* in, int* fibonaccis, unsigned* gcds, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    fibonaccis[i] = fibonacci(in[i] % 8);
    gcds[i] = gcd(in[i], 360 + i);
}

typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) {
    return a + b;
}
__device__ __noinline__ int subtract(int a, int b) {
    return a - b;
}
__device__ __noinline__ int multiply(int a, int b) {
    return a * b;
}
__device__ __noinline__ int larger(int a, int b) {
    return a > b ? a : b;
}
__device__ Operation operations[] = {add, subtract, multiply, larger};

__global__ void dispatch(const int* which, const int* a, const int* b, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = operations[which[i]](a[i], b[i]);
}

struct Shape {
    __device__ virtual int area() const = 0;
};
struct Square : Shape {
    int side;
    __device__ explicit Square(int side) : side(side) {
    }
    __device__ int area() const override {
        return side * side;
    }
};
struct Rectangle : Shape {
    int width, height;
    __device__ Rectangle(int width, int height) : width(width), height(height) {
    }
    __device__ int area() const override {
        return width * height;
    }
};

__device__ __noinline__ int area_of(const Shape* shape) {
    return shape->area();
}

__global__ void areas(const int* widths, const int* heights, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Square square(widths[i]);
    Rectangle rectangle(widths[i], heights[i]);
    const Shape* shape = heights[i] == 0 ? (const Shape*)&square : (const Shape*)&rectangle;
    out[i] = area_of(shape);
}

// A machine with one register: each thread runs its own program.
__global__ void interpreter(const int* programs, int length, int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int value = i;
    for (int pc = 0; pc < length; ++pc) {
        switch (programs[i * length + pc]) {
            case 0:
                value += 7;
                break;
            case 1:
                value *= 3;
                break;
            case 2:
                value = value ^ 0x5a5a;
                break;
            case 3:
                value = -value;
                break;
            case 4:
                value = value >> 2;
                break;
            case 5:
                value = value / 5;
                break;
            case 6:
                value = __popc(value) + pc;
                break;
            case 7:
                value = min(value, 1000 - pc);
                break;
            case 8:
                value = value << 3 | pc;
                break;
            default:
                pc += 1;
        }
    }
    out[i] = value;
}

// The array stands in local memory, as its indices are known only when the kernel runs.
__global__ void insertion_sort(const short* in, short* out, int n) {
    const int size = 11;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    short values[size];
    for (int j = 0; j < size; ++j) values[j] = in[i * size + j];
    for (int j = 1; j < size; ++j) {
        short value = values[j];
        int k = j;
        while (k > 0 && values[k - 1] > value) {
            values[k] = values[k - 1];
            --k;
        }
        values[k] = value;
    }
    for (int j = 0; j < size; ++j) out[i * size + j] = values[j];
}
