# SPDX-License-Identifier: Apache-2.0
"""How long this package waits where no option says so.

These are no options: there is nothing in them to choose for a user. They are one value,
``ClientOptions.patience``, so that a test can hand over another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Waits, in seconds.

    Attributes:
        refresh_s: How often a master is asked while rows flow. Brokers are closed by
            hand, tokens turn over every few minutes, and masters forget producers that
            are silent.
        rest_s: The same after no master has answered, which can take some seconds each
            time.
        search_s: How often masters are asked about other brokers while no broker takes
            a row.
        occupied_s: How long a reader waits for its turn at a partition. Brokers drop a
            registration without a use after 30 s.
        occupied_pause_s: Pause between two tries to register.
        first_pause_s: Pause before a read is tried again. It doubles each time.
        max_pause_s: Longest such pause.
    """

    refresh_s: float = 10.0
    rest_s: float = 60.0
    search_s: float = 5.0
    occupied_s: float = 35.0
    occupied_pause_s: float = 1.0
    first_pause_s: float = 0.1
    max_pause_s: float = 2.0
