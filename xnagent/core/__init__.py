"""The product's idea as values and pure functions: no await, clock, file, socket, randomness or log."""
