"""Recurrent layers with Keras's interface, and wrappers of them."""
