"""The HTTP edge: authenticates, limits, routes and answers; never unpickles and never runs user code."""
