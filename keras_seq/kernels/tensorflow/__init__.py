"""Optimized kernels for TensorFlow, nearly all for its CPU. The only files of this package that import TensorFlow."""
