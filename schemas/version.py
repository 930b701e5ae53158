"""The versions of what crosses a process boundary: messages and configuration files."""

from typing import Final

SCHEMA_VERSION: Final = 1
"""Version of the message schemas. It changes only when a change cannot be made by adding a field with a default."""

CONFIG_VERSION: Final = 1
"""Version of the configuration file format (`version:` at its top)."""
