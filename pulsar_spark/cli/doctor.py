# SPDX-License-Identifier: Apache-2.0
"""``doctor``: whether a job can work from here, step by step, and what to change.

The first steps look at this machine: the Python that Spark will start, Spark, Java,
jars that take the name of the format. The others go the way of a read: an address, a
connection, TLS, who we are, a topic, its partitions, its schema, and one message, by a
reader that leaves nothing. A step that needs one that failed is not tried.
"""

from __future__ import annotations

import argparse
import glob
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pulsar_spark._version import __version__
from pulsar_spark.cli.arguments import (
    DONE,
    FAILED,
    Cluster,
    add_options,
    given_options,
)
from pulsar_spark.cli.output import moment, say, show_json, table
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.peek import Peeker, begin
from pulsar_spark.client.pool import BrokerAddress
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.errors import (
    AuthError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TlsError,
    TopicNotFoundError,
    TransportError,
    foreign_text,
)
from pulsar_spark.loops import messages
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import (
    CommonOptions,
    parse_common_options,
    problems_by_use,
)
from pulsar_spark.schemas.info import version_number
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.layout import Layout
from pulsar_spark.wire.protocol import Delivery
from spark_topics import releases
from spark_topics.process import python_of_sources

OK, WARNING, BAD, NOT_DONE = "ok", "warning", "FAILED", "not done"

_SERVICE = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
_SCALA = b"org.apache.spark.sql.pulsar"

#: What a Python that Spark starts must be able to say.
_PROBE = (
    "import sys, importlib.metadata as m\n"
    "import pulsar_spark\n"
    "print(pulsar_spark.__version__, pulsar_spark.kernel,"
    " '%d.%d' % sys.version_info[:2])\n"
    "from pulsar_spark.requirements import require_packages\n"
    "require_packages()"
)


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor",
        help="find out why a job does not work: Python, Spark, address, TLS, topic",
        description="Go through what a job needs, step by step, and say what fails, why"
        " and what cures it:\nthe Python that Spark starts, Spark, Java, jars; then"
        " connection, TLS, authentication,\nlookup, partitions, schema, and one message"
        " of the topic. Nothing is left in the\ncluster. Without options only this"
        " machine is looked at. Run it where the driver runs.",
        epilog="example:\n  pulsar-spark doctor -o"
        " service.url=pulsar+ssl://broker:6651 \\\n      -o"
        " pulsar.client.authPluginClassName=token -o"
        " pulsar.client.authParams=token:file:/run/token \\\n      -o"
        " topic=public/default/orders",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="longest time for a step, 15 by default",
    )
    add_options(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Step:
    """A step and the result.

    Attributes:
        name: The subject of the check.
        result: One of the words above.
        found: The finding.
        cure: What to change, "" for nothing.
    """

    name: str
    result: str
    found: str
    cure: str = ""


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if not 0 < arguments.deadline <= 3600:
        raise OptionError("--deadline must be above 0, and 3600 at most.")
    options = given_options(arguments)
    steps = list(of_this_machine(arguments.deadline))
    if options:
        steps += of_cluster(options, arguments.deadline)
    if arguments.json:
        show_json(
            {
                "steps": [
                    {
                        "step": s.name,
                        "result": s.result,
                        "found": s.found,
                        "cure": s.cure,
                    }
                    for s in steps
                ]
            }
        )
    else:
        _show(steps, has_cluster=bool(options))
    return FAILED if any(step.result == BAD for step in steps) else DONE


def _show(steps: Sequence[Step], *, has_cluster: bool) -> None:
    rows = [[step.name, step.result, step.found] for step in steps]
    say(table(["STEP", "RESULT", "FOUND"], rows))
    for step in steps:
        if step.cure:
            say(f"\n{step.name}: {step.cure}")
    if not has_cluster:
        say(
            "\nOnly this machine was looked at: add -o service.url=... and -o topic=..."
        )


def _in_time(
    name: str, deadline_s: float, look: Callable[[], Step], cure: str = ""
) -> Step:
    """Run a step with a deadline."""
    taken: list[Step] = []

    def take() -> None:
        try:
            taken.append(look())
        except PulsarSparkError as error:
            taken.append(Step(name, BAD, _one_line(error), cure))
        except Exception as error:
            # Its text may hold anything.
            taken.append(Step(name, BAD, type(error).__name__, cure))

    thread = threading.Thread(target=take, name="doctor", daemon=True)
    thread.start()
    thread.join(deadline_s)
    if taken:
        return taken[0]
    return Step(name, BAD, f"no answer within {deadline_s:g} s", cure)


def _one_line(error: PulsarSparkError) -> str:
    return " ".join(str(error).split())


# -- this machine ----------------------------------------------------------------------


def of_this_machine(
    deadline_s: float, environment: Mapping[str, str] | None = None
) -> list[Step]:
    """Return what there is to say of the machine of the driver.

    Args:
        deadline_s: Longest time for a step, in seconds.
        environment: What Spark would be started with; None for what this process has.
    """
    variables = os.environ if environment is None else environment
    return [
        _package(),
        _in_time("Spark", deadline_s, _spark),
        _in_time("Java", deadline_s, lambda: _java(variables, deadline_s)),
        _in_time(
            "Python of Spark",
            2 * deadline_s,
            lambda: _python_of_spark(variables, deadline_s),
        ),
        _in_time("jars", deadline_s, lambda: _jars(variables)),
    ]


def _package() -> Step:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"pulsar-spark {__version__} ({messages.KERNEL}), Python {version}"
    if messages.KERNEL == "compiled":
        return Step("package", OK, text)
    return Step(
        "package",
        WARNING,
        text,
        "The inner loops run as Python: same results, but several times slower. Install"
        " a wheel; or a C compiler and Python's headers, then this package again.",
    )


def _spark() -> Step:
    try:
        import pyspark
    except ImportError:
        return Step("Spark", BAD, "no pyspark", "pip install pyspark")
    version = str(pyspark.__version__)
    text, release = f"pyspark {version}", releases.parse_release(version)
    if release is None:
        return Step("Spark", WARNING, text, "It is not known what this version can do.")
    if release < releases.SPARK:
        least = releases.text(releases.SPARK)
        return Step("Spark", BAD, text, f"pulsar-spark needs Spark {least} or newer.")
    if release < releases.SPARK_WITH_LIMITS:
        least = releases.text(releases.SPARK_WITH_LIMITS)
        return Step(
            "Spark",
            WARNING,
            text,
            "Streams read all that there is in each micro-batch: limits, such as"
            f" maxRowsPerTrigger, need Spark {least} or newer.",
        )
    return Step("Spark", OK, text)


def _java(given: Mapping[str, str], deadline_s: float) -> Step:
    home = given.get("JAVA_HOME", "")
    java = os.path.join(home, "bin", "java") if home else "java"
    cure = (
        f"Spark needs a JDK of version {releases.JAVA} or newer: install one, and set"
        " JAVA_HOME."
    )
    if shutil.which(java, path=given.get("PATH")) is None:
        return Step("Java", BAD, f"no {java}", cure)
    done = _run([java, "-version"], given, deadline_s)
    if done.returncode:
        return Step("Java", BAD, f"{java} does not start", cure)
    lines = (done.stderr or done.stdout).strip().splitlines()
    return Step("Java", OK, foreign_text(lines[0] if lines else java, 100))


def _python_of_spark(given: Mapping[str, str], deadline_s: float) -> Step:
    """Look whether the Python that Spark starts for sources has the package."""
    python, reason = python_of_sources(given)
    name = "Python of Spark"
    cure = (
        f"Spark starts {python} ({reason}) to find sources and to run their tasks."
        " Without the package there a job ends in DATA_SOURCE_NOT_FOUND. Get the"
        " session from pulsar_spark.session(), or call pulsar_spark.use(spark). Or"
        f" set PYSPARK_PYTHON={sys.executable} before Spark starts, on executors, too,"
        " and leave PYSPARK_DRIVER_PYTHON out."
    )
    path = shutil.which(python, path=given.get("PATH"))
    if path is None:
        return Step(name, BAD, f"{python} is not there", cure)
    done = _run([path, "-c", _PROBE], given, deadline_s)
    if done.returncode:
        # The last line of a traceback says why; other programs say other things.
        *_, last_line = done.stderr.strip().splitlines() or [""]
        is_python = "Error" in last_line
        said = f": {foreign_text(last_line, 200)}" if is_python else ""
        text = f"{path} cannot import pulsar_spark{said}"
        return Step(name, BAD, text, cure)
    version, kernel, minor = (*done.stdout.split(), "", "", "")[:3]
    text = f"{path}: pulsar-spark {version} ({kernel}), Python {minor}"
    here = "{}.{}".format(*sys.version_info[:2])
    if version != __version__:
        return Step(name, BAD, text, f"Here it is {__version__}. {cure}")
    if minor != here:
        return Step(name, BAD, text, f"The driver has Python {here}. {cure}")
    return Step(name, OK, text)


def _spark_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of Spark's defaults file, if any."""
    home = given.get("SPARK_HOME", "")
    folder = given.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    settings = {}
    try:
        with open(
            os.path.join(folder, "spark-defaults.conf"), encoding="utf-8"
        ) as file:
            for line in file:
                parts = line.replace("=", " ", 1).split(None, 1)
                if len(parts) == 2 and not parts[0].startswith("#"):
                    settings[parts[0]] = parts[1].strip()
    except (OSError, ValueError):
        pass
    return settings


def _jars(given: Mapping[str, str]) -> Step:
    """Look for jars that register another source under the name of the format."""
    jars, looked = [], 0
    for path in jars_of_spark(given):
        looked += 1
        if has_scala_connector(path):
            jars.append(path)
    if not jars:
        return Step("jars", OK, f"{looked} looked at, none has a source named pulsar")
    return Step(
        "jars",
        BAD,
        "; ".join(jars),
        'The Scala connector is on the class path: format("pulsar") is that one, and'
        " this package is not asked. Remove the jar (also from spark.jars and"
        " --packages, which cannot be seen from here).",
    )


def jars_of_spark(given: Mapping[str, str]) -> list[str]:
    """Return the jars that Spark is seen to load from here."""
    folders = []
    if given.get("SPARK_HOME"):
        folders.append(os.path.join(given["SPARK_HOME"], "jars"))
    else:
        try:
            import pyspark
        except ImportError:
            pass
        else:
            folders.append(os.path.join(os.path.dirname(pyspark.__file__), "jars"))
    jars = [path for folder in folders for path in glob.glob(f"{folder}/*.jar")]
    conf = _spark_defaults(given)
    lists = [conf.get("spark.jars", "").split(",")]
    lists += [
        conf.get(name, "").split(os.pathsep)
        for name in ("spark.driver.extraClassPath", "spark.executor.extraClassPath")
    ]
    lists.append(given.get("SPARK_CLASSPATH", "").split(os.pathsep))
    for path in (
        entry.strip().removeprefix("file:") for entries in lists for entry in entries
    ):
        jars += glob.glob(path) if path.endswith((".jar", "*")) else []
    return sorted(dict.fromkeys(jars))


def has_scala_connector(path: str) -> bool:
    """Return whether a jar registers the Scala connector as a source of Spark."""
    try:
        with zipfile.ZipFile(path) as jar, jar.open(_SERVICE) as file:
            return _SCALA in file.read(1 << 20)
    except (OSError, KeyError, zipfile.BadZipFile, RuntimeError):
        return False


def _run(
    command: Sequence[str], given: Mapping[str, str], deadline_s: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            env=dict(given),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=deadline_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", type(error).__name__)


# -- the cluster -----------------------------------------------------------------------

#: The pages on the web.
_PAGES = "https://github.com/pulsar-spark/pulsar-spark/blob/main/docs"

_CONNECT, _TLS, _WHO = "connection", "TLS", "authentication"
_LOOKUP, _PARTITIONS, _SCHEMA, _MESSAGE = "lookup", "partitions", "schema", "message"


def of_cluster(given: Mapping[str, str], deadline_s: float) -> list[Step]:
    """Return the steps about the cluster that options name."""
    steps = [_options(given)]
    try:
        options = _hurried(parse_common_options(given), deadline_s)
    except OptionError as error:
        steps = [Step("options", BAD, " ".join(error.problems), _FIX)]
    if steps[0].result == BAD:
        return [
            *steps,
            *_left(_CONNECT, _TLS, _WHO, _PARTITIONS, _LOOKUP, _SCHEMA, _MESSAGE),
        ]
    with Cluster(options, None) as cluster:
        steps += _connect(cluster, deadline_s)
        is_connected = steps[-1].result not in (BAD, NOT_DONE)
        topics = options.topics
        if not is_connected:
            steps += _left(_PARTITIONS, _LOOKUP, _SCHEMA, _MESSAGE)
        elif options.topics_pattern is None and not topics:
            steps.append(Step(_PARTITIONS, NOT_DONE, "no topic: add -o topic=..."))
        else:
            steps += _of_topics(cluster, deadline_s)
    return steps


_FIX = "Fix the options named above."


def _options(given: Mapping[str, str]) -> Step:
    """Judge the options as each kind of read or write for which they may be meant."""
    uses: dict[tuple[str, ...], list[str]] = {}
    is_fine = True
    for group in problems_by_use(given):
        is_fine = is_fine and () in group.values()
        for use, problems in group.items():
            uses.setdefault(problems, []).append(use)
    fine = uses.pop((), [])
    texts: Iterable[str] = [
        f"As {' or '.join(kinds)}: {' '.join(problems)}"
        for problems, kinds in uses.items()
    ]
    if not texts:
        return Step("options", OK, f"{len(given)} given")
    if is_fine:
        return Step("options", WARNING, " ".join(texts))
    if len(uses) == 1 and not fine:
        (texts,) = uses
    return Step("options", BAD, " ".join(texts), _FIX)


def _hurried(options: CommonOptions, deadline_s: float) -> CommonOptions:
    client = options.client
    return replace(
        options,
        client=replace(
            client,
            operation_timeout_s=min(client.operation_timeout_s, deadline_s),
            connection_timeout_s=min(client.connection_timeout_s, deadline_s),
            lookup_timeout_s=min(client.lookup_timeout_s, deadline_s),
        ),
    )


def _left(*names: str) -> list[Step]:
    return [Step(name, NOT_DONE, "") for name in names]


def _connect(cluster: Cluster, deadline_s: float) -> list[Step]:
    """Connect to each host, and tell how far that goes."""
    url = cluster.options.client.service_url
    began = [Step(_CONNECT, NOT_DONE, "")]
    for host in url.hosts:
        began = _connect_to(cluster, host, deadline_s)
        if began[-1].result == OK:
            break
    return began


def _connect_to(cluster: Cluster, host: str, deadline_s: float) -> list[Step]:
    client = cluster.options.client
    uses_tls, method = client.service_url.uses_tls, _method(cluster)
    results: list[Connection | PulsarSparkError] = []

    def connect() -> Step:
        try:
            results.append(cluster.pool.get(BrokerAddress(host)))
        except PulsarSparkError as error:
            results.append(error)
        return Step(_CONNECT, OK, host)

    # What comes in the way of a connection: host, TLS, handshake, each with its limit.
    step = _in_time(_CONNECT, 3 * deadline_s, connect)
    if not results:
        return [step, *_left(_TLS, _WHO)]
    result = results[0]
    tls_step = Step(_TLS, OK, "the broker's certificate is trusted")
    if not uses_tls:
        tls_step = Step(_TLS, OK, "none: service.url begins with pulsar://")
    elif client.tls.allow_insecure:
        tls_step = Step(
            _TLS,
            WARNING,
            "certificates are not looked at",
            "Set pulsar.client.tlsAllowInsecureConnection to false.",
        )
    if isinstance(result, Connection):
        return [step, tls_step, Step(_WHO, OK, method)]
    text = _one_line(result)
    if isinstance(result, TlsError):
        cure = f"Trust, host names and client certificates: {_PAGES}/security.md#tls"
        return [step, Step(_TLS, BAD, text, cure), *_left(_WHO)]
    if isinstance(result, AuthError):
        cure = f"The broker's log says more. {_PAGES}/security.md#authentication"
        return [step, tls_step, Step(_WHO, BAD, text, cure)]
    cure = (
        "Is it the binary port, usually 6650 (6651 with TLS), and not the HTTP one? Is"
        " there a firewall between, and is the broker up?"
    )
    if not isinstance(result, (TransportError, ProtocolError)):
        cure = "The broker's log says more."
    return [Step(_CONNECT, BAD, text, cure), *_left(_TLS, _WHO)]


def _method(cluster: Cluster) -> str:
    credential = cluster.options.client.authentication.credential
    if credential is None:
        return "none given, and the broker asks for none"
    return f"the broker takes it ({type(credential).__name__})"


def _of_topics(cluster: Cluster, deadline_s: float) -> list[Step]:
    """Go the way of a read, with the first topic partition there is."""
    names: list[str] = []

    def partitions() -> Step:
        names.extend(_topic_partitions(cluster))
        return Step(_PARTITIONS, OK, f"{len(names)}: {_few(names)}")

    steps = [
        _in_time(
            _PARTITIONS,
            deadline_s,
            partitions,
            "Correct the name: tenant/namespace/topic, as pulsar-admin topics list"
            " shows it; or let the role consume from it.",
        )
    ]
    if steps[-1].result != OK:
        return [*steps, *_left(_LOOKUP, _SCHEMA, _MESSAGE)]
    steps.append(
        _in_time(
            _LOOKUP,
            deadline_s,
            lambda: _look_up(cluster, names),
            "Brokers name each other by addresses that must be reached from here. Or "
            "set pulsar.client.listenerName or a proxy: "
            f"{_PAGES}/cluster.md#what-must-reach-what",
        )
    )
    if steps[-1].result != OK:
        return [*steps, *_left(_SCHEMA, _MESSAGE)]
    steps.append(_in_time(_SCHEMA, deadline_s, lambda: _schema(cluster, names[0])))
    steps.append(
        _in_time(_MESSAGE, 2 * deadline_s, lambda: _message(cluster, names, deadline_s))
    )
    return steps


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _topic_partitions(cluster: Cluster) -> list[str]:
    lookup = TopicLookup(cluster.pool)
    options = cluster.options
    topics = list(options.topics)
    if options.topics_pattern is not None:
        namespace = options.topics_pattern.namespace_name
        listed = lookup.topics_of_namespace(namespace)
        listed += lookup.scalable_topics(namespace)
        matching = filter(options.topics_pattern.matches, listed)
        topics = sorted({TopicName.parse(name).base for name in matching})
        if not topics:
            raise TopicNotFoundError(
                f"no topic of {options.topics_pattern.namespace_name} matches",
                code="TopicNotFound",
            )
    contents = lookup.topics({topic.base.full_name for topic in topics})
    names = []
    for topic in topics:
        count = contents[topic.base.full_name]
        if isinstance(count, Layout):
            names += list(count.by_name)
        elif topic.partition_index is not None:
            names.append(topic.full_name)
        elif count is None:
            raise TopicNotFoundError(
                f"{topic.full_name} does not exist", code="TopicNotFound"
            )
        else:
            names += list(topic.partition_names(range(count))) or [topic.full_name]
    return list(dict.fromkeys(names))


def _look_up(cluster: Cluster, names: Sequence[str]) -> Step:
    """Look up the broker of each topic partition, and connect to each broker."""
    answers = TopicLookup(cluster.pool).brokers(names)
    for answer in answers.values():
        if isinstance(answer, PulsarSparkError):
            raise answer
    for connection in cluster.pool.get_all(answers).values():
        if isinstance(connection, PulsarSparkError):
            raise connection
    brokers = {
        broker.proxied or broker.physical
        for broker in answers.values()
        if isinstance(broker, BrokerAddress)
    }
    return Step(_LOOKUP, OK, f"served by {_few(sorted(brokers))}")


def _schema(cluster: Cluster, name: str) -> Step:
    info = SchemaLookup(cluster.pool).latest([name])[name]
    if info is None or not info.is_typed:
        return Step(_SCHEMA, OK, "none: values are bytes")
    number = version_number(info.version)
    version = "" if number is None else f", version {number}"
    return Step(_SCHEMA, OK, f"{info.type_name}{version}")


def _message(cluster: Cluster, names: Sequence[str], deadline_s: float) -> Step:
    """Read a message of the first topic partition that has any."""
    arrived = threading.Condition()

    def make(topic: str, connection: Connection) -> _Taker:
        return _Taker(topic, connection, EARLIEST, arrived)

    with ConsumerSet(cluster.pool, make) as group:
        group.connect(names)
        begin(group)
        for name, error in group.take_failures().items():
            # A partition that nobody has used yet does not exist.
            if not (isinstance(error, TopicNotFoundError) and "-partition-" in name):
                raise error
        full = [
            full_member
            for full_member in group.members.values()
            if not full_member.positions.is_empty
        ]
        if not full:
            return Step(_MESSAGE, OK, "the topic is empty")
        full[0].grant(1)
        with arrived:
            arrived.wait_for(lambda: full[0].taken or not full[0].is_open, deadline_s)
            taken = full[0].taken
    if taken is None:
        return Step(
            _MESSAGE,
            BAD,
            f"{full[0].topic}: none came within {deadline_s:g} s",
            "An open transaction may hold it back (see the command transactions), or an"
            " entry filter of the broker.",
        )
    entry = read_stored_entry(
        taken.ledger_id, taken.entry_id, taken.headers_and_payload
    )
    place = MessageId(entry.ledger_id, entry.entry_id)
    published = moment(entry.metadata.publish_time)
    sealed = ", encrypted" if entry.metadata.encryption_keys else ""
    return Step(
        _MESSAGE, OK, f"{full[0].topic}: {place}, published {published}{sealed}"
    )


class _Taker(Peeker):
    """Takes the first entry that comes.

    Attributes:
        taken: That entry.
    """

    taken: Delivery | None = None

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Take the first entry."""
        with self._arrived:
            self.taken = self.taken or deliveries[0]
            self._arrived.notify_all()
