"""Doubles that ship with the product: a scripted model server with a simulated cache, and small stand-ins for ports."""
