"""The module's name before torch 1.12."""

from oneccl_bindings_for_pytorch import cwd  # noqa: F401
