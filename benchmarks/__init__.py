"""Benchmarks: each compares in one run, by medians, and can exit 1 below what is required."""
