"""The composition root: the only file that knows every room. It starts kenari, keeps it running and ends it."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable

import uvloop

from kenari.catalog.models import Catalog
from kenari.config import Config, with_demo_model
from kenari.core.ids import Envelopes, derive_key
from kenari.core.ports import Upstream
from kenari.demo.server import DemoModel, start_demo
from kenari.demo.welcome import welcome
from kenari.doors.edge import Edge, EdgeLimits
from kenari.doors.listeners import listen
from kenari.doors.public import PublicDoor
from kenari.gateway.serve import Gateway
from kenari.gateway.ticker import Ticker
from kenari.keeper.books import LogBooks
from kenari.keeper.secrets import load_secret
from kenari.keys.bootstrap import BootstrapKeys, load_first_key
from kenari.upstream.http import HttpUpstream
from kenari.upstream.scripted import ScriptedUpstream

_log = logging.getLogger("kenari")


def run(config: Config, demo: bool = False) -> int:
    """Serve until SIGTERM or SIGINT; the exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, demo))


async def _serve(config: Config, demo: bool) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    model: DemoModel | None = None
    if demo:
        started = await start_demo(_say)
        if isinstance(started, str):
            _say(f"the real demo model is not available: {started}. serving the scripted one")
        else:
            model = started
        config = with_demo_model(config, model.base_url if model else None, model.model_name if model else "")
    try:
        return await _Server(config).run(demo)
    finally:
        if model is not None:
            await model.stop()
