"""The executor: does the device commands of one session, inside a sandboxed worker."""
