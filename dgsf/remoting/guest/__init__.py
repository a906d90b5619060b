"""The guest: torch code runs here, its device is elsewhere."""
