"""Engines' logs: read as the stream that an engine wrote, and kept within bounds."""
