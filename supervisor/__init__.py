"""engine-supervisor: launches LLM inference engines as supervised processes."""

__version__ = "0.1.0"
