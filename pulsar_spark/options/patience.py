# SPDX-License-Identifier: Apache-2.0
"""How long the connector waits where no option says so.

These are no options: there is nothing in them to choose for a user. They are one value,
so that a test can hand over another. ``ClientOptions.patience`` takes it to executors.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """Waits, in seconds unless said otherwise.

    Attributes:
        tick_s: How often the reading thread of a connection looks at the clock when
            nothing arrives.
        close_s: Longest wait for brokers to forget consumers and producers.
        cluster_s: Shortest time for the answer of a cluster that may be down, and
            longest pause between two rounds of questions.
        controller_s: How long the controller of a scalable topic is waited for: as long
            as it takes to elect another one where brokers were told to end.
        settling_s: How long a broker may take to know all entries of a sealed segment.
        delivery_s: How long a broker may take to deliver the last entry of a segment.
        tail_s: How long it may take to read a topic that was migrated.
        write_s: How long a write goes on with a broker that cannot be reached, or a
            topic that no broker serves, at least. A broker can be started again in that
            time. A cluster notices after 30 s, by its usual settings, that one is gone.
        write_tick_s: How often a writing task that waits looks at the clock.
        silences: The number of silences that the send timeout is divided into. After
            each but the last, the producer attaches again.
        turn_s: How long a task waits for its turn where others have a topic to
            themselves. These are most often tasks of the same write: each ends in its
            own time.
        place_s: How long a producer stays in a queue for exclusive access before it
            joins the end of the queue. A topic that moves, or is loaded again, has a
            new queue, and brokers (4.0.7) say nothing to those in the old one.
        early_s: How long PRODUCER that did not wait for its lookup may stay without an
            answer, after that of the lookup, before PRODUCER is sent again.
        unheard_s: How long PRODUCER, or a request to a coordinator, may stay without an
            answer before the topic partition is looked up again: brokers (4.0.7) may
            say nothing where they do not serve the topic partition. Doubles each time.
        ending_s: How long a broker must go on saying that a topic has ended before that
            counts. A migration changes two things, with one write to the store of the
            metadata between them, so this is ample. Where a topic has ended for good, a
            job waits for its error so long.
        confirmed_s: How old the last word on a transaction may be while rows are sent.
        proof_s: How long to wait for a first entry that proves that the start of a
            range is there, before the broker is asked.
        silence_s: Silence after which the broker is asked whether anything is left.
        gaps_s: Pause between two looks at a topic partition that has many gaps.
        hidden_s: How long a probe waits for the broker to pass over entries, and how
            long between two looks. Brokers take milliseconds for a hundred entries.
        look_s: Longest wait for entries by which a plan decides. Without them limits
            are less exact. An end may be a position at which nothing is delivered.
        acknowledge_s: Longest wait for the answer to an acknowledgement. Brokers send
            none while a topic moves.
        forget_s: How long a broker may take to forget a subscription that was not
            durable.
        delete_s: Longest time for tries to delete a subscription when a query stops.
        busy_s: How long to ask for the subscription of a query that has just ended. The
            query's process may still be on its way out, and a broker takes a moment to
            notice.
        quiet_s: How long nothing is new in a topic partition before the broker is asked
            about open transactions, and how long until it is asked again. Few
            transactions are open for longer.
    """

    tick_s: float = 1.0
    close_s: float = 5.0
    cluster_s: float = 1.0
    controller_s: float = 10.0
    settling_s: float = 1.0
    delivery_s: float = 2.0
    tail_s: float = 120.0
    write_s: float = 120.0
    write_tick_s: float = 0.5
    silences: int = 2
    turn_s: float = 600.0
    place_s: float = 60.0
    early_s: float = 0.25
    unheard_s: float = 2.0
    ending_s: float = 5.0
    confirmed_s: float = 1.0
    proof_s: float = 0.5
    silence_s: float = 0.5
    gaps_s: float = 1.0
    hidden_s: float = 2.0
    look_s: float = 2.0
    acknowledge_s: float = 1.0
    forget_s: float = 0.1
    delete_s: float = 5.0
    busy_s: float = 6.0
    quiet_s: float = 60.0


#: What options have when they are parsed.
USUAL = Patience()
