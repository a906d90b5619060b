"""Remote devices: the guest that looks like a local device, the executor that does its work, and what they say."""
