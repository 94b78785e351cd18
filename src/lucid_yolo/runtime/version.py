"""The version of this package."""

from __future__ import annotations

import importlib


def package_version() -> str:
    """Return the version; not asked of the installed packages, where another one may have this one's name."""
    # By name: an import would tie this module to everything that the package offers at its top.
    return str(importlib.import_module(__name__.partition(".")[0]).__version__)
