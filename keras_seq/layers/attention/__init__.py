"""Attention and what stands around it: positions, caches, the Transformer block."""
