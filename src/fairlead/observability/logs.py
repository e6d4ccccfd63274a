"""Structured logs: one JSON object a line on stderr."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import structlog


def configure(level: str) -> None:
    """Log from `level` on: debug, info, warning or error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.__stderr__),
        cache_logger_on_first_use=True,
    )


def log_loop_errors() -> None:
    """Have the running loop log what fails outside of any task as one JSON line, as all else is, not as a bare traceback."""
    asyncio.get_running_loop().set_exception_handler(_on_loop_error)


def _on_loop_error(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a loop's error. context: as `call_exception_handler` describes it."""
    log = structlog.get_logger()
    error = context.get("exception")
    ended = "transport" in context and (context["transport"] is None or context["transport"].is_closing())
    if isinstance(error, RuntimeError) and (ended or "closed=True" in str(error)):
        # uvloop answers what the peer sent last over TLS although the connection was closed meanwhile: nothing is lost. It names
        # the transport in its words; while a process ends that is closed without having been closing.
        log.debug("data after the end of a connection", error=str(error))
        return
    log.error("error outside of a task", message=context.get("message", ""), exc_info=error)
