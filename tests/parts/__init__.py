"""Real components that tests run against: how each is had, and where it lies."""
