"""Ready functions to deploy and call; importable without a GPU and without torch."""
