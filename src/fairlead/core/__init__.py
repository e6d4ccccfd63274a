"""The scheduler as a pure library: no sockets, no asyncio, no wall clock, no logging, no randomness.

Start reading at `schedule.py`: its numbered steps are one pass.
"""
