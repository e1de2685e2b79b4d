"""Engine installs: where an engine's own programs live, and the ones we make ourselves."""
