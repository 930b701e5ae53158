"""TLS for scraping: one context from the configured files, made anew when one of them changes."""

import os
import ssl

from runtime.errors import ConfigError


class TlsContext:
    """What https endpoints are met with. `get` is None where Python's own rules do: the system's authorities."""

    def __init__(self, *, ca_file: str | None, cert_file: str | None, key_file: str | None, verify: bool) -> None:
        """Raises ConfigError for files that make no context."""
        self._ca_file, self._cert_file, self._key_file, self._verify = ca_file, cert_file, key_file, verify
        self._trouble: str | None = None
        self._stamps = self._stat()
        self._context = self._make() if self._files() or not verify else None

    def get(self) -> ssl.SSLContext | None:
        """The context, with the files as they are now: certificates are rotated under a running agent. Files that make
        none any more leave the last one.
        """
        if self._context is not None and (stamps := self._stat()) != self._stamps:
            self._stamps = stamps  # tried once, for it takes time: the other half of a rotation changes them again
            try:
                self._context, self._trouble = self._make(), None
            except ConfigError as error:
                self._trouble = str(error)
        return self._context

    def trouble(self) -> str | None:
        """Why the newest files are not in use, or None."""
        return self._trouble

    def _files(self) -> list[str]:
        return [path for path in (self._ca_file, self._cert_file, self._key_file) if path is not None]

    def _stat(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in self._files()]

    def _make(self) -> ssl.SSLContext:
        what = f"collector.tls_ca_file: {self._ca_file}"
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
            what = f"collector.tls_cert_file: {self._cert_file} with the key in {self._key_file or 'it'}"
            if self._cert_file is not None:
                # With a password, or OpenSSL would ask the terminal for one.
                context.load_cert_chain(self._cert_file, self._key_file, password="")
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(f"{what}: {error}; it must be a readable PEM file") from error
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
