"""Objects of a bucket, in the format of NATS's object store, read message by message and never by a consumer.

An object `<folder>/<name>` lies in chunks on `$O.<bucket>.C.<folder>.<number>.<name>`, where the number is the
stream's last sequence as it was put: the subject alone tells whose it is, what it is called and what came before it,
and a permission can be for one folder. A description beside it (`$O.<bucket>.M.<base64url of the name>`) is for
`nats object get` and the like; we read none, since whoever may write one may write any.
(NATS ADR-20: https://github.com/nats-io/nats-architecture-and-design/blob/main/adr/ADR-20.md)
"""

import base64
import contextlib
import hashlib
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from runtime.bus import split_name
from runtime.bus_refusals import WHO_MAY, Refusals
from runtime.errors import BusError
from runtime.nats_bus_client import Error, JetStreamContext, NotFoundError

CHUNK_BYTES: Final = 256 * 1024
"""Size of a chunk. A quarter of the server's default `max_payload`: the answer that holds one is a third longer."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Largest object that is put or read."""


class _Found(NamedTuple):
    number: int
    subject: str
    name: str


class Objects:
    """Puts, reads, lists and deletes. Every call ends: each answer is waited for as long as JetStream's requests."""

    def __init__(self, jetstream: Callable[[], JetStreamContext], refusals: Refusals) -> None:
        self._jetstream = jetstream
        self._refusals = refusals

    async def put(self, bucket: str, name: str, payload: bytes) -> None:
        """Stores the payload; returns when the bucket has it. Raises BusError."""
        folder, last = split_name(name)
        if len(payload) > MOST_BYTES:
            raise BusError(f"{bucket}: {name} has {len(payload)} bytes, the limit is {MOST_BYTES}")
        js, stream = self._jetstream(), _stream(bucket)
        try:
            number = (await js.stream_info(stream)).state.last_seq
            nuid = f"{folder}.{number:020d}.{last}"
            chunks = [payload[at : at + CHUNK_BYTES] for at in range(0, len(payload), CHUNK_BYTES)]
            for chunk in chunks:
                await js.publish(f"$O.{bucket}.C.{nuid}", chunk, stream=stream)
            described = _description(bucket, name, nuid, payload, len(chunks))
            await js.publish(_described(bucket, name), described, stream=stream, headers={"Nats-Rollup": "sub"})
        except (Error, TimeoutError) as error:
            raise BusError(f"{bucket}: {name} was not stored {self._why(bucket, error)}") from error

    async def get(self, bucket: str, name: str) -> bytes | None:
        """The payload last put under this name, None if there is none. Raises BusError."""
        folder, last = split_name(name)
        found = await self._found(bucket, f"{folder}.*.{last}")
        return await self._read(bucket, found[-1].subject) if found else None

    async def names(self, bucket: str, folder: str) -> list[str]:
        """The names of all objects in a folder, or of all in the bucket for "", by when they were put, oldest first;
        each once. Raises BusError.
        """
        where = f"{split_name(f'{folder}/any')[0]}.*.*" if folder else "*.*.*"
        latest = {found.name: found.number for found in await self._found(bucket, where)}
        return sorted(latest, key=lambda name: (latest[name], name))

    async def delete(self, bucket: str, name: str) -> None:
        """Removes an object, if there is one. Raises BusError."""
        folder, last = split_name(name)
        try:
            for subject in (f"$O.{bucket}.C.{folder}.*.{last}", _described(bucket, name)):
                await self._jetstream().purge_stream(_stream(bucket), subject=subject)
        except (Error, TimeoutError) as error:
            raise BusError(f"{bucket}: {name} was not deleted {self._why(bucket, error)}") from error

    async def _found(self, bucket: str, where: str) -> list[_Found]:
        """The objects whose chunks are on these subjects, oldest first. What is no object of ours is passed over."""
        prefix = f"$O.{bucket}.C."
        try:
            state = (await self._jetstream().stream_info(_stream(bucket), subjects_filter=f"{prefix}{where}")).state
        except NotFoundError:
            return []
        except (Error, TimeoutError) as error:
            raise BusError(f"{bucket}: cannot be read {self._why(bucket, error)}") from error
        found = []
        for subject in state.subjects or {}:
            folder, number, last = subject.removeprefix(prefix).split(".")
            if number.isdecimal():
                found.append(_Found(int(number), subject, f"{folder}/{last}"))
        return sorted(found)

    async def _read(self, bucket: str, subject: str) -> bytes | None:
        js, parts, size, sequence = self._jetstream(), [], 0, 1
        try:
            with contextlib.suppress(NotFoundError):  # the end of it
                while size <= MOST_BYTES:
                    message = await js.get_msg(_stream(bucket), seq=sequence, subject=subject, next=True)
                    parts.append(message.data or b"")
                    size, sequence = size + len(parts[-1]), (message.seq or sequence) + 1
        except (Error, TimeoutError) as error:
            raise BusError(f"{bucket}: {subject} cannot be read {self._why(bucket, error)}") from error
        return b"".join(parts) if parts else None

    def _why(self, bucket: str, error: Exception) -> str:
        refused = self._refusals.about(lambda where: bucket.lower() in where)
        helps = refused or f"check that the server answers, and that this credential may: {WHO_MAY}"
        return f"({type(error).__name__}: {error}); {helps}"


def _stream(bucket: str) -> str:
    return f"OBJ_{bucket}"


def _described(bucket: str, name: str) -> str:
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _description(bucket: str, name: str, nuid: str, payload: bytes, chunks: int) -> bytes:
    digest = base64.urlsafe_b64encode(hashlib.sha256(payload).digest()).decode()
    return json.dumps(
        {
            "name": name,
            "options": {"max_chunk_size": CHUNK_BYTES},
            "bucket": bucket,
            "nuid": nuid,
            "size": len(payload),
            "mtime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "chunks": chunks,
            "digest": f"SHA-256={digest}",
        }
    ).encode()
