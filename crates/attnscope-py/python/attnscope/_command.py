"""The command line, where it is installed with the package."""
