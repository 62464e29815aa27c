# SPDX-License-Identifier: Apache-2.0
"""How long this package waits where no option says so.

These are no options: there is nothing in them to choose for a user. They are one value,
``ConnectionOptions.patience``, so that a test can hand over another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Waits, in seconds.

    Attributes:
        ready_s: How long the first answer of the cluster may take.
        look_s: How long it may take before a look at the reason: the SDK itself gives
            up after ten seconds, and says nothing of why.
        look_step_s: Longest time of each step of that look.
        stop_s: How long closing waits for the SDK's thread, which may be waiting for a
            connection.
        call_s: How long a call waits for one answer.
        ask_s: Silence of a stream after which the server is asked how far it is.
        take_back_s: Shortest and longest pause before a producer is taken back, once.
            As two attempts of a task wait differently long, one of them is done
            meanwhile, or has ended the other for good.
    """

    ready_s: float = 10.0
    look_s: float = 1.0
    look_step_s: float = 3.0
    stop_s: int = 1
    call_s: float = 20.0
    ask_s: float = 5.0
    take_back_s: tuple[float, float] = (0.5, 3.0)
