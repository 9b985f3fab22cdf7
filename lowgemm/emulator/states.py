"""What a lane does when it does not go on: the values of a batch's ``status``."""

from __future__ import annotations

__all__ = [
    "AT_BARRIER",
    "AT_WARPSYNC",
    "EXITED",
    "IN_CLUSTER",
    "RUNNING",
    "SYNCHRONISING",
]

RUNNING, SYNCHRONISING, AT_BARRIER, AT_WARPSYNC, IN_CLUSTER, EXITED = range(6)
