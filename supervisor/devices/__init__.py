"""What this host and its accelerators are: probes, and the snapshot made of their answers."""
