"""Optimized kernels for torch: mostly torch's own fused operations, on the weights of the layers."""
