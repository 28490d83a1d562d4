"""A form that is passed on while it comes: what a client wants is read on the way, what came stays for the next candidate."""

import asyncio
from collections.abc import Callable

from kenari.core.errors import KenariError, bad_request
from kenari.core.outbound import Stream
from kenari.core.ports import Exchange
from kenari.gateway.kinds.asks import Ask, wave_seconds
from kenari.gateway.kinds.spool import Spool
from kenari.wire.multipart import KEPT, BadForm, FormScanner, Part, boundary_of, content_type_of


class Form:
    """The body of a transcription (core.ports.Taker). `broken` is why the rest of it does not come, or is of no use.

    A client says in the head how long its form is, and most send the fields before the file: then a provider is called as soon
    as the model is known. A file that comes first, or a form of unknown length, is waited for.
    """

    def __init__(self, exchange: Exchange, clock: Callable[[], float]) -> None:
        """Raises 415 for another type of body, 400 for a form without a boundary."""
        kind = exchange.headers.get(b"content-type", b"")
        if not kind.lower().lstrip().startswith(b"multipart/form-data"):
            raise KenariError(
                "unsupported_media_type", "send the audio as multipart/form-data with the fields file and model"
            )
        try:
            boundary = boundary_of(kind)
        except BadForm as error:
            raise _no_form(error) from None
        self._exchange, self._clock = exchange, clock
        self._incoming = exchange.incoming
        self._type = content_type_of(boundary)
        self._scanner = FormScanner(boundary)
        self._spool = Spool(self._flow)
        self._length = len(exchange.body) if self._incoming is None else self._incoming.size
        self._model: Part | None = None
        self._file: Part | None = None
        self._seen = 0  # parts that were looked at
        self._whole = False
        self._late = 0.0
        self._waits: float | None = None  # since when a provider waits for the client's next bytes
        self._moved = 0.0
        self._news = asyncio.Event()
        self.broken: KenariError | None = None

    async def ready(self) -> bool:
        """Wait until a provider can be called; False when the client has gone. Raises what is wrong with the form."""
        if self._incoming is None:
            self.on_data(self._exchange.body)
            self.on_whole()
        else:
            self._incoming.take(self)
        while not (self._whole or self._enough()):
            if self._exchange.gone:
                return False
            if self.broken is not None:
                raise self.broken
            self._news.clear()
            await self._news.wait()
        return True

    def ask(self) -> Ask:
        """What the client wants, as far as it has come; all of it when the form is whole."""
        model, file = self._model, self._file
        assert model is not None
        assert file is not None
        size = self._spool.size if self._length is None else self._length
        end = size if file.end is None else file.end
        fields = {part.name: bytes(part.kept).strip() for part in self._scanner.parts if not part.is_file}
        return Ask(
            kind="transcription",
            model=model.kept.decode("utf-8", "replace"),
            content_type=self._type,
            body=_nothing,
            stream_of=self._stream,
            seconds=wave_seconds(bytes(file.kept), end - file.start),
            stream=fields.get("stream") == b"true",
            size=size,
            seen=b"%b\0%d\0%b" % (model.kept, size, file.kept),
        )

    def late(self, now: float) -> float:
        """Seconds for which a provider had to wait for the client's bytes: they are not the provider's."""
        return self._late + (0.0 if self._waits is None else now - self._waits)

    def moved(self, now: float) -> float:
        """When the last bytes were passed on; now, while none are there to pass on."""
        return self._moved if self._waits is None else now

    def close(self) -> None:
        """The request has ended: nothing of it is kept."""
        self._spool.close()

    async def read(self, at: int) -> bytes:
        """Bytes of the form as it came, from an offset on."""
        began = self._clock()
        self._waits = None if self._whole else began
        try:
            return await self._spool.read(at)
        finally:
            self._moved = self._clock()
            if self._waits is not None:
                self._late += self._moved - began
                self._waits = None

    # -- the client speaks (core.ports.Taker)

    def on_data(self, data: bytes) -> None:
        """The next bytes."""
        if self.broken is not None:
            return
        try:
            self._scanner.feed(data)
            self._look()
        except BadForm as error:
            self.on_broken(_no_form(error))
        except KenariError as error:
            self.on_broken(error)
        else:
            self._spool.put(data)
            self._news.set()

    def on_whole(self) -> None:
        """The form is there."""
        if self.broken is not None:
            return
        try:
            self._scanner.close()
            self._check()
        except BadForm as error:
            self.on_broken(_no_form(error))
        except KenariError as error:
            self.on_broken(error)
        else:
            self._whole = True
            self._spool.finish()
            self._news.set()

    def on_broken(self, error: KenariError) -> None:
        """The rest does not come."""
        if self.broken is None:
            self.broken = error
            self._spool.fail(error)
            self._news.set()

    # --

    def _look(self) -> None:
        """Look at parts that have begun. Raises 400 for a second model or file."""
        parts = self._scanner.parts
        for part in parts[self._seen :]:
            if part.name in ("model", "file"):
                if any(other.name == part.name for other in parts if other is not part):
                    raise bad_request(f"{part.name} stands twice in the form. send it once", part.name)
                if part.name == "model":
                    self._model = part
                else:
                    self._file = part
        self._seen = len(parts)

    def _check(self) -> None:
        """Raises 400 for what is missing in a form that is whole."""
        file, model = self._file, self._model
        if file is None or not file.kept:
            raise bad_request("file is required: the audio to transcribe", "file")
        if model is None or model.is_file or not model.kept.strip() or len(model.kept) >= KEPT:
            raise bad_request("model is required: the id of a model (see GET /v1/models)", "model")

    def _enough(self) -> bool:
        """Model and file are known well enough, and so is the length that a provider has to be told."""
        file, model = self._file, self._model
        if self.broken is not None or self._length is None or model is None or model.end is None or file is None:
            return False
        if file.end is None and len(file.kept) < KEPT:
            return False
        try:
            self._check()
        except KenariError as error:
            self.on_broken(error)
            return False
        return True

    def _stream(self, model: str) -> Stream:
        assert self._model is not None
        return _Renamed(self, self.ask().size, self._model, model.encode())

    def _flow(self, on: bool) -> None:
        if self._incoming is None:
            return
        if on:
            self._incoming.resume()
        else:
            self._incoming.pause()


class _Renamed:
    """The form with another model's name (core.outbound.Stream); every other byte as it came."""

    def __init__(self, form: Form, size: int, part: Part, name: bytes) -> None:
        assert part.end is not None
        self._form, self._name = form, name
        self._start, self._more = part.start, len(name) - (part.end - part.start)
        self.size = size + self._more

    async def read(self, at: int) -> bytes:
        """The next bytes from an offset on."""
        start, name = self._start, self._name
        if at < start:
            return (await self._form.read(at))[: start - at]
        if at < start + len(name):
            return name[at - start :]
        return await self._form.read(at - self._more)


def _nothing(model: str) -> bytes:
    return b""


def _no_form(error: BadForm) -> KenariError:
    return bad_request(f"the body is no form: {error}")
