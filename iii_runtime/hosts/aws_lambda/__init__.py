"""Entry points of the Lambdas: one generic handler per kind, the function chosen by environment."""
