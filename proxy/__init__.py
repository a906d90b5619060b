"""The proxy: multiplexes calls onto leased workers, records their outcomes. It never runs or reads user code."""
