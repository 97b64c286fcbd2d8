"""What layers share: state, matrices, configuration, checks of a call."""
