"""The composition root: it alone names every class. `running` is where sessions begin."""
