"""A rank's device, memory, network interfaces and settings."""
