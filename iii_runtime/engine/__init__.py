"""What happens next: the order of effects, written against the ports alone."""
