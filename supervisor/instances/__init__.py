"""The record store, the lease and the ports derived from it, and ``state_of``."""
