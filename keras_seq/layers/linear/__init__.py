"""Linear recurrences: state spaces, linear attention, delta rules."""
