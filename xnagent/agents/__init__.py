"""Planner, Worker and Verifier: what they do with a model, tools and the log. They name no provider and no screen."""
