"""Sessions: programs attached to a remote device through this proxy."""
