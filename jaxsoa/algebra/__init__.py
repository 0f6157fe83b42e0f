"""The spatial operator algebra: expressions over H, phi, M, psi ... that evaluate by O(N) sweeps."""
