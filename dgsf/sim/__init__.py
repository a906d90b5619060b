"""Simulations over the same decisions that production takes: traces in, tables out.  Nothing here runs a call."""
