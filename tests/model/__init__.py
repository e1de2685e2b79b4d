"""The supervisor against a model of it: what must hold after whatever was done to it."""
