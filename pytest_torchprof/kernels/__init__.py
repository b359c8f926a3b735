"""Kernels: what a kernel is, what its name and its launch say about it, and what a test may ask of it."""
