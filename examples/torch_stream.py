"""A rung of the ladder on torch tensors, in torch's own stream, beside torch.mm."""

import torch

import lowgemm
from lowgemm.gemm import RungKernel, rung

torch.backends.cuda.matmul.allow_tf32 = False
gpu = lowgemm.Gpu()
ex8 = RungKernel(gpu, rung("ex8", gpu.architecture))

stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    a = torch.randn(2000, 3000, device="cuda")
    b = torch.randn(3000, 1000, device="cuda")
    c = torch.empty(2000, 1000, device="cuda")
    # Checked and packed once; each call then costs what a launch costs.
    multiply = ex8.prepare_matrices(a, b, c, stream=stream)
    multiply()
    error = (c - a @ b).abs().max()
stream.synchronize()
print(f"largest difference to torch.mm: {error.item():.2e}")
