"""What recorded work costs under other context strategies, caches and prices: replayed on sizes, without any model."""
