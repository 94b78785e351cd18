"""One loss per file, formula and source in its docstring."""
