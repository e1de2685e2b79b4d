"""Models on disk: what their own headers say, and whether they will fit a host's devices.

Everything that reads here blocks, so callers run it in a worker thread with a deadline.
"""
