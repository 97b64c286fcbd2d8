"""The configs of the models, a file a family."""
