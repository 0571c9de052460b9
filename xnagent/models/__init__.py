"""The wires that models speak, and the one module that speaks HTTP."""
