"""Which pods are in the canary: a stable share of them, picked by uid alone. Guard and actuator must agree on it."""

import hashlib
from typing import Final

_BYTES: Final = 8
_RANGE: Final = 1 << 8 * _BYTES


def is_canary(uid: str, ratio: float) -> bool:
    """Whether the pod with this uid is among the share `ratio` (0-1) of pods.

    The same on every machine and in every run, independent of all other pods; who is in at one ratio is in at every
    larger one. At 0 nobody is, at 1 everybody.
    """
    digest = hashlib.sha256(uid.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:_BYTES], "big") < ratio * _RANGE
