"""The programs that the platform is measured against, each as small as its framework allows."""
