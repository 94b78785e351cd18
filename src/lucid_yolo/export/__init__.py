"""Files that run without this package: one module per format, and the gate that compares them with eager."""
