"""What remote devices cost: the same programs on a local and on a remote device, side by side."""
