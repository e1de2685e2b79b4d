"""Readiness: the probe, the proof that the answer came from our own engine, and the pacing."""
