// A template with a type and a number.
template <class T, int N>
__global__ void polynomial(const T* x, T* y, const T* coefficients) {
    T v = x[threadIdx.x], sum = coefficients[0];
#pragma unroll
    for (int i = 1; i < N; ++i) sum = sum * v + coefficients[i];
    y[threadIdx.x] = sum;
}
template __global__ void polynomial<float, 8>(const float*, float*, const float*);
template __global__ void polynomial<double, 4>(const double*, double*, const double*);
template __global__ void polynomial<int, 5>(const int*, int*, const int*);
