"""The supervisor: starts the parts of a platform on one machine, keeps them running, stops them in order."""
