"""Training on rented machines: plan, submit, follow and resume under a cap on money."""
