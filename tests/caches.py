"""What is remembered of expressions and of questions about them, forgotten on purpose."""

from __future__ import annotations

import sys


def forget(*packages: str) -> None:
    """Empties the caches of functions in these packages of diptych."""
    wanted = tuple(f"diptych.{package}" for package in packages)
    for name, module in list(sys.modules.items()):
        if name.startswith(wanted):
            for item in vars(module).values():
                if hasattr(item, "cache_clear") and not isinstance(item, type):
                    item.cache_clear()
