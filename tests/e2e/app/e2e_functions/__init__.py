"""Functions of stage e2e alone: what the order pipeline has no need of, and a test from outside wants to see."""
