"""The only mutator: launch, stop, cancel, wait. One named task per instance."""
