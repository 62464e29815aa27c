# SPDX-License-Identifier: Apache-2.0
"""The whole way in one command: ``make demo``.

Starts a broker (or takes the one of ``PULSAR_SERVICE_URL``), lets the official client
write a day of orders of a web shop, and has Spark read and sum them up.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pulsar
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ROOT = Path(__file__).parents[1]
SEED = 20261121
ORDERS = 120_000
PARTITIONS = 4
DAY = datetime(2026, 11, 20, tzinfo=timezone.utc)

#: Country, its share of the orders, and the hour (UTC) in which it buys most.
COUNTRIES = (
    ("DE", 24, 18),
    ("FR", 18, 19),
    ("GB", 16, 20),
    ("NL", 11, 17),
    ("PL", 10, 16),
    ("SE", 8, 18),
    ("BR", 8, 23),
    ("JP", 5, 11),
)
PRODUCTS = (("lamp", 3490), ("chair", 8900), ("mug", 890), ("desk", 24900))
ORDER = "order_id LONG, customer STRING, country STRING, product STRING, \
quantity INT, cents LONG"


@dataclass
class Written:
    """What went into the topic, to be compared with what Spark finds."""

    rows: int = 0
    cents: int = 0
    seconds: float = 0.0


def main() -> None:
    """Write, read, compare, and show."""
    say("pulsar-spark demo\n")
    with broker() as (service_url, admin_url, whose):
        step("Broker", f"{service_url} ({whose})")
        topic = new_topic(admin_url)
        written = write(service_url, topic)
        step(
            "Written",
            f"{written.rows:,} orders by the official client in {written.seconds:.1f} s"
            " (LZ4, keys, event times)",
        )
        with spark_session() as spark:
            read(spark, service_url, topic, written)
    farewell(topic, whose)


def read(spark: SparkSession, service_url: str, topic: str, written: Written) -> None:
    """Read the topic: the part that a reader of this file came for."""
    rows = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", topic)
        .load()
    )
    orders = rows.select(
        f.from_json(f.col("value").cast("string"), ORDER).alias("order"),
        f.hour("__eventTime").alias("hour"),
    ).select("order.*", "hour")
    by_country = (
        orders.groupBy("country")
        .agg(
            f.count("*").alias("orders"),
            f.sum("cents").alias("cents"),
            f.mode("hour").alias("busiest_hour"),
        )
        .orderBy(f.desc("cents"))
        .collect()
    )

    show(by_country)
    found = sum(row.orders for row in by_country), sum(row.cents for row in by_country)
    if found != (written.rows, written.cents):
        raise SystemExit(f"Spark found {found}, but {written} was written.")
    step("Checked", "every order and every cent is there")

    seconds, size_bytes = throughput(rows)
    step(
        "Read",
        f"again, all seven columns, fastest of three: {seconds:.2f} s,"
        f" {written.rows / seconds:,.0f} rows/s, {size_bytes / seconds / 1e6:.0f} MB/s",
    )


def show(by_country: list[Any]) -> None:
    """Return the result as a table."""
    say("\n  country     orders         revenue   busiest hour (UTC)")
    for row in by_country:
        say(
            f"  {row.country:7} {row.orders:10,} {row.cents / 100:15,.2f}"
            f"   {row.busiest_hour:02}:00"
        )
    orders = sum(row.orders for row in by_country)
    cents = sum(row.cents for row in by_country)
    say(f"  {'all':7} {orders:10,} {cents / 100:15,.2f}\n")


def throughput(rows: DataFrame) -> tuple[float, int]:
    """Seconds of the fastest of three reads, and the bytes of the values read."""
    size_bytes = int(rows.agg(f.sum(f.length("value"))).collect()[0][0])
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - began)
    return min(seconds), size_bytes


# -- writing: the official client, nothing of ours -----------------------------------


def new_topic(admin_url: str) -> str:
    """Return an unused name; make the topic partitioned with an admin URL."""
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    topic = f"persistent://public/default/spark-demo-{now}-{os.urandom(3).hex()}"
    if admin_url:
        from pulsar_spark.testing.admin import Admin

        Admin(admin_url).create_partitioned(topic, PARTITIONS)
        step("Topic", f"{topic}, {PARTITIONS} partitions")
    else:
        step("Topic", f"{topic}, not partitioned (that needs PULSAR_ADMIN_URL)")
    return topic


def write(service_url: str, topic: str) -> Written:
    """Has the official client write the orders of a day."""
    written = Written()
    failed: list[Any] = []

    def sent(result: Any, _: Any) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    began = time.perf_counter()
    client = pulsar.Client(
        service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    producer = client.create_producer(
        topic,
        compression_type=pulsar.CompressionType.LZ4,
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=20,
        block_if_queue_full=True,
    )
    for order, event_time in orders_of_a_day():
        producer.send_async(
            json.dumps(order).encode(),
            sent,
            partition_key=order["customer"],
            event_timestamp=int(event_time.timestamp() * 1000),
        )
        written.rows += 1
        written.cents += order["cents"]
    producer.flush()
    client.close()
    if failed:
        raise SystemExit(f"The official client could not write: {failed[0]}")
    written.seconds = time.perf_counter() - began
    return written


def orders_of_a_day() -> Iterator[tuple[dict[str, Any], datetime]]:
    """Yield the same orders in each run, most orders in the evening of a country."""
    rng = random.Random(SEED)
    shares = [share for _, share, _ in COUNTRIES]
    for number in range(ORDERS):
        country, _, peak = rng.choices(COUNTRIES, shares)[0]
        hour = rng.gauss(peak, 4) % 24
        product, price = rng.choice(PRODUCTS)
        quantity = rng.choice((1, 1, 1, 2, 2, 3))
        order = {
            "order_id": number,
            "customer": f"{country.lower()}-{rng.randrange(5000)}",
            "country": country,
            "product": product,
            "quantity": quantity,
            "cents": quantity * price,
        }
        yield order, DAY + timedelta(hours=hour)


# -- around it: a broker, a quiet Spark, words ---------------------------------------


@contextlib.contextmanager
def broker() -> Iterator[tuple[str, str, str]]:
    """Service URL, admin URL ("" for none), and whose broker it is."""
    service_url = os.environ.get("PULSAR_SERVICE_URL", "")
    if service_url:
        yield service_url, os.environ.get("PULSAR_ADMIN_URL", ""), "yours"
        return
    from pulsar_spark.testing.embedded_broker import EmbeddedBroker

    say("  Starting a broker ...")
    with EmbeddedBroker(log_level="warn") as embedded:
        whose = f"Pulsar {embedded.version}, gone when this ends"
        yield embedded.service_url, embedded.admin_url, whose


@contextlib.contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Yield local Spark, whose log goes to a file that only a failure shows."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-demo-") as folder:
        builder = (
            SparkSession.builder.master("local[2]")
            .appName("pulsar-spark demo")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        )
        log = Path(folder, "spark.log")
        try:
            with stderr_to(log):
                spark = builder.getOrCreate()
        except Exception:
            sys.stderr.write(log.read_text())
            raise
        spark.sparkContext.setLogLevel("ERROR")
        step("Spark", f"{spark.version}, local, two tasks at a time")
        try:
            yield spark
        finally:
            spark.stop()


@contextlib.contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Send stderr to a file: this process's meanwhile, its children's for good."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with file.open("wb") as target:
            os.dup2(target.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def farewell(topic: str, whose: str) -> None:
    """Say what is left, and what to try next."""
    if whose == "yours":
        say(f"\nThe topic {topic} stays on your broker; delete it when you like.")
    else:
        say("\nWith a broker of your own, into a fresh topic that stays there:")
        say("  PULSAR_SERVICE_URL=pulsar://host:6650 make demo")
        say("and with PULSAR_ADMIN_URL=http://host:8080, too, into a partitioned one.")


def step(name: str, text: str) -> None:
    """One thing done."""
    say(f"  {name:9}{text}")


def say(text: str) -> None:
    """To the terminal, now."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
