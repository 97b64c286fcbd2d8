"""Share what all layers have: state, matrices, configuration, checks of a call."""
