"""Which anchor point learns which target."""
