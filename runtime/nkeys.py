"""NKeys: Ed25519 keys in the text form by which a NATS server knows its users.

Base32 of a prefix, 32 bytes and a CRC-16 (https://docs.nats.io/using-nats/developer/connecting/nkey). PyNaCl does the
cryptography and is imported with the first key: 1 MiB that a process without one does not pay. The package `nkeys`
would do the same and comes as source only, which the locked installation does not take.
"""

import base64
import binascii
import secrets
from typing import Final

_SEED: Final = 18 << 3  # reads as S
_USER: Final = 20 << 3  # reads as U
_KEY_BYTES: Final = 32
_SEED_LETTERS: Final = 58
_USER_SEED: Final = bytes((_SEED | _USER >> 5, (_USER & 31) << 3))
"""A seed's prefix says what it is (S) and what for (U), five bits of the second letter in the second byte."""


class UserKey:
    """A user's key pair. `public` may be shown to everybody; the seed must not."""

    def __init__(self, seed: str) -> None:
        """Raises ValueError, with words that do not repeat the seed, for what is no user's seed."""
        from nacl.signing import SigningKey  # noqa: PLC0415 - see the module's docstring

        self._key = SigningKey(_raw_seed(seed))
        self.public: Final = _encode(bytes((_USER,)) + self._key.verify_key.encode())

    def sign(self, nonce: str) -> bytes:
        """The signature of what the server asks to be signed, in base64."""
        return base64.b64encode(self._key.sign(nonce.encode()).signature)


def new_seed() -> str:
    """A fresh seed for a user."""
    return _encode(_USER_SEED + secrets.token_bytes(_KEY_BYTES))


def _raw_seed(text: str) -> bytes:
    if len(text) != _SEED_LETTERS:
        raise ValueError(f"it is {len(text)} letters long, not {_SEED_LETTERS}")
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise ValueError("it is not base32") from None
    body, checksum = raw[:-2], raw[-2:]
    if _checksum(body) != checksum:
        raise ValueError("its checksum is wrong: a letter was changed or lost")
    if not body.startswith(_USER_SEED):
        raise ValueError("it is no user's seed, which begins with SU")
    return body[len(_USER_SEED) :]


def _encode(body: bytes) -> str:
    return base64.b32encode(body + _checksum(body)).decode().rstrip("=")


def _checksum(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0).to_bytes(2, "little")
