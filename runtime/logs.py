"""Structured logs on the standard library: JSON lines off a terminal, short lines on one.

The event is a constant snake_case word, everything else is a field. (structlog would do the same for 7 MiB in each of
five processes: docs/adr/0004-small-processes.md.)
"""

import json
import logging
import sys
import time
from typing import TextIO

import msgspec

from runtime.settings import LogSettings

_FIELDS = "trimtab_fields"


class Log:
    """Writes events with fields that stay (`service`, `node`) and fields of the moment."""

    def __init__(self, logger: logging.Logger, **fields: object) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> "Log":
        """A log with more fields that stay."""
        return Log(self._logger, **{**self._fields, **fields})

    def debug(self, event: str, **fields: object) -> None:
        """For someone who looks closely."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """What happened."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """What an operator may want to look at."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """What an operator must look at."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={_FIELDS: {**self._fields, **fields}})


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        own: dict[str, object] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line = {**own, **getattr(record, _FIELDS, {"logger": record.name}), **own}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # a file name that is no Unicode: escaped, where msgspec refuses
            return json.dumps(line, default=str)


class _ConsoleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = dict(getattr(record, _FIELDS, {"logger": record.name}))
        service = fields.pop("service", "")
        fields.pop("node", None)
        rest = " ".join(f"{key}={value}" for key, value in fields.items())
        rest = " ".join(rest.splitlines())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{stamp} {record.levelname[0]} {service:<9} {record.getMessage()} {rest}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Sends all logs of this process to stderr in the chosen format."""
    stream = stream or sys.stderr
    as_json = settings.format == "json" or (settings.format == "auto" and not stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonFormatter() if as_json else _ConsoleFormatter())
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.getLogger("nats").setLevel(logging.CRITICAL)  # its connection troubles reach us by callback, once
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def get_log(service: str, **fields: object) -> Log:
    """The log of one service."""
    return Log(logging.getLogger(f"trimtab.{service}"), service=service, **fields)
