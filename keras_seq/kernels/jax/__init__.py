"""Optimized kernels for JAX."""
