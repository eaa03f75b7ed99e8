"""What is to exist, worked out from catalog and config alone. Pure; hosts and constructs both run from it."""
