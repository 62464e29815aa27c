# SPDX-License-Identifier: Apache-2.0
"""No command prints a secret, whatever it is given, and wherever that stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.cli import doctor
from pulsar_spark.cli.arguments import admin_of, topic_names
from pulsar_spark.errors import OptionError, ProtocolError
from pulsar_spark.options import parse_common_options
from pulsar_spark.options.failover import NAME as FAILOVER
from tests.support.admin_stub import AdminStub
from tests.support.checkpoints import offset, write_checkpoint
from tests.support.scripted_broker import ScriptedBroker, refuse

if TYPE_CHECKING:
    from tests.cli.conftest import Run

SECRET = "c2VjcmV0LW9mLXRoZS10ZXN0"
LONG_SECRET = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2IifQ.{SECRET}_and_more"
T = "persistent://public/default/t"

TOKEN = {
    "pulsar.client.authPluginClassName": "token",
    "pulsar.client.authParams": f"token:{SECRET}",
}
LOGIN = {
    "pulsar.client.authPluginClassName": "basic",
    "pulsar.client.authParams": json.dumps({"userId": "me", "password": SECRET}),
}
WRONG = {  # a secret where none is expected
    "service.url": f"pulsar://me:{SECRET}@127.0.0.1:1",
    "pulsar.client.tlsTrustStorePassword": SECRET,
    "pulsar.client.authParams": SECRET,
    "pulsar.client.authParamMap": f'{{"token": {SECRET}',
    "pulsar.client.tokn": SECRET,
    "encryption.privateKeys": SECRET,
}

AT_NONE = {
    "service.url": "pulsar://127.0.0.1:1",
    "admin.url": "http://127.0.0.1:1",
    "pulsar.client.operationTimeoutMs": "100",
    "pulsar.client.lookupTimeoutMs": "100",
}

COMMANDS = [
    ("doctor", "--deadline", "30"),
    ("checkpoint", "CHECKPOINT"),
    ("checkpoint", "CHECKPOINT", "--set-position", "latest", "--yes"),
    ("lag", "CHECKPOINT"),
    ("subscriptions", "t"),
    ("transactions", "--idempotence-id", "orders"),
]
each_command = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python and no Java is started for what is about options."""
    monkeypatch.setattr(doctor, "of_this_machine", lambda deadline_s: [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint."""
    return write_checkpoint(tmp_path / "c", {0: [offset({T: "7:0"})]}, 0)


def filled(command: tuple[str, ...], folder: Path) -> list[str]:
    """The command with a checkpoint put in."""
    return [str(folder) if one == "CHECKPOINT" else one for one in command]


def as_arguments(options: dict[str, str]) -> list[str]:
    """Options as a command line has them."""
    return [part for name in options for part in ("-o", f"{name}={options[name]}")]


@each_command
@pytest.mark.parametrize("way", [TOKEN, LOGIN], ids=["token", "basic"])
@pytest.mark.parametrize("is_refused", [True, False])
def test_given_rightly(
    scripted: ScriptedBroker,
    stub: AdminStub,
    folder: Path,
    run: Run,
    command: tuple[str, ...],
    way: dict[str, str],
    is_refused: bool,
) -> None:
    """Neither where the cluster takes it, nor where it refuses and repeats it."""
    scripted.add_topic(T)
    if is_refused:
        reason = f"token {SECRET} is not valid"
        scripted.always("CONNECT", refuse("AuthenticationError", "no such token"))
        stub.answers["GET /admin/v2/persistent/public/default/t/stats"] = (
            401,
            {"reason": reason.replace(SECRET, "...")},
        )
    options = {"service.url": scripted.url, "topic": "t", **way}
    arguments = [*filled(command, folder), *as_arguments(options)]
    if command[0] in ("checkpoint", "lag", "subscriptions", "transactions"):
        arguments += ["--admin-url", stub.url]
    code, printed = run(*arguments)
    assert code in (0, 1), printed
    assert printed
    assert SECRET not in printed


@each_command
@pytest.mark.parametrize("name", WRONG)
def test_given_wrongly(
    folder: Path, run: Run, command: tuple[str, ...], name: str
) -> None:
    """An option that cannot work is an error that names it, and shows no value."""
    options = {"service.url": "pulsar://127.0.0.1:1", **TOKEN, name: WRONG[name]}
    arguments = [*filled(command, folder), *as_arguments(options)]
    if command[0] == "subscriptions":
        arguments += ["--admin-url", "http://127.0.0.1:1"]
    limits = ("operationTimeoutMs", "lookupTimeoutMs", "connectionTimeoutMs")
    arguments += as_arguments({f"pulsar.client.{name}": "100" for name in limits})
    code, printed = run(*arguments)
    assert code in (1, 2)
    assert SECRET not in printed


@pytest.mark.parametrize(
    "arguments",
    [
        (f"pulsar.client.authParams=token:{SECRET}",),
        (f"token:{SECRET}", "doctor"),
        ("doctor", f"pulsar.client.authParams=token:{SECRET}"),
        ("doctor", "-o", f"token:{SECRET}"),
        ("doctor", f"-x=token:{SECRET}"),
        ("doctor", "--deadline", f"token:{SECRET}"),
        ("subscriptions", f"pulsar.client.authParams=token:{SECRET}"),
        ("transactions", f"authParams=token:{SECRET}", "--log", "-o", "service.url=x"),
        ("subscriptions", "t", "--admin-url", f"http://me:{SECRET}@a:8080"),
        ("lag", "/nowhere", "-o", f"=token:{SECRET}"),
        ("doctor", "-o", f"pulsar.client.authParams:token:{SECRET}=="),
        ("doctor", "-o", f"authParams {SECRET}=x"),
        ("doctor", "-o", f"kafka.sasl.jaas.config:{SECRET}=="),
        ("doctor", "-o", f"pulsar.admin.authParams:token:{SECRET}=="),
        ("transactions", "t", "-o", f"pulsar.client.authParams:token:{SECRET}=="),
        ("doctor", "-o", f"rows=5 pulsar.client.authParams=token:{SECRET}"),
        ("peek", "-o", f"pulsar.client.numIoThreads=5\nauthParams=token:{SECRET}"),
        ("doctor", "-o", f"{LONG_SECRET}=pulsar.client.authParams"),
        ("doctor", "-o", f"{SECRET}=authParams"),
        ("doctor", "-o", f"{LONG_SECRET}=x"),
    ],
)
def test_in_the_wrong_place(run: Run, arguments: tuple[str, ...]) -> None:
    """Where ``-o`` was forgotten, what stands there is not repeated."""
    code, printed = run(*arguments)
    assert code in (1, 2)
    assert SECRET not in printed


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "pulsar.client.authParams=token:",
        "pulsar.client.authParam=",
        "authParams:token:",
        "authParams : ",
        "token:",
        "pulsar://me:",
        "https://",
    ],
)
@pytest.mark.parametrize("place", [*range(17), None])
def test_in_any_place(
    stub: AdminStub,
    folder: Path,
    run: Run,
    name: str,
    place: int | None,
    is_whole: bool,
) -> None:
    """An option behind a value, or instead of a value, is not repeated by any command.

    Nor is it sent to a server.
    """
    asks = ("-o", "service.url=pulsar://127.0.0.1:1", "--admin-url", stub.url)
    asks += ("-o", "pulsar.client.operationTimeoutMs=100")
    asks += ("-o", "pulsar.client.lookupTimeoutMs=100")
    commands: list[tuple[str, ...]] = [
        ("checkpoint", "HERE"),
        ("checkpoint", str(folder), "--set-position", "HERE", *asks),
        ("checkpoint", str(folder), "--set-time", "HERE", *asks),
        ("checkpoint", str(folder), "--options", "HERE"),
        ("checkpoint", str(folder), "--source", "HERE"),
        ("lag", "HERE", *asks),
        ("lag", str(folder), "--event-log", "HERE", "--plot", "x.svg"),
        ("lag", str(folder), "--admin-url", "HERE", "-o", "service.url=pulsar://a"),
        ("subscriptions", "HERE", *asks),
        ("subscriptions", "t", "HERE", *asks),
        ("subscriptions", "--pattern", "HERE(", *asks),
        ("subscriptions", "t", "--checkpoint=HERE", *asks),
        ("transactions", "HERE", *asks),
        ("transactions", "t", "--id", "HERE", *asks),
        ("transactions", "t", "--older-than", "HERE", *asks),
        ("transactions", "--idempotence-id", "HERE/", *asks),
        ("broker", "--release", "HERE"),
    ]
    text = f"{name}{SECRET}@host" if "//" in name else name + SECRET
    text = text if is_whole else f"5 {text}"
    command = commands[place] if place is not None else ("plan", "-o", "HERE")
    code, printed = run(*(one.replace("HERE", text) for one in command))
    assert code in (1, 2), printed
    assert SECRET not in printed
    assert not any(SECRET in path for _, path, _ in stub.asked)


@pytest.mark.parametrize(
    "text",
    [
        f"pulsar.client.authParams=basic-user:{LONG_SECRET}",
        f'authParams={{"userId":"u","password":"{SECRET}"}}',
        f'{{"t":"authParams=token:{SECRET}"}}',
        f'{{"authParams=token:{SECRET}":1}}',
        f"authParams=token:{LONG_SECRET}/",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("checkpoint", "CHECKPOINT", "--set-time"),
        ("checkpoint", "CHECKPOINT", "--set-position"),
        ("lag",),
        ("subscriptions",),
        ("transactions", "t", "--older-than"),
        ("transactions", "--idempotence-id"),
    ],
    ids=" ".join,
)
def test_where_the_error_cuts_or_escapes_the_text(
    folder: Path, run: Run, command: tuple[str, ...], text: str
) -> None:
    """Nor is a part of it shown."""
    code, printed = run(*filled(command, folder), text, *as_arguments(AT_NONE))
    assert code in (1, 2)
    assert printed
    assert SECRET[:4] not in printed
    assert LONG_SECRET[:4] not in printed


def test_a_place_with_a_colon(run: Run) -> None:
    """An error that is none of usage shows the name."""
    code, printed = run("lag", "/nowhere/my app:v2", *as_arguments(AT_NONE))
    assert code == 1
    assert "/nowhere/my app:v2" in printed


def test_a_topic_with_a_colon_in_json(folder: Path, run: Run) -> None:
    """What is wrong with its position is told."""
    positions = json.dumps({"persistent://public/default/urn:isbn:x": "bogus"})
    code, printed = run("checkpoint", folder, "--set-position", positions)
    assert code == 2
    assert '"bogus" is not' in printed


@pytest.mark.parametrize("name", ["urn:isbn:1234567", "a:db.table:v1", "k8s~app=web"])
@pytest.mark.parametrize("scheme", ["persistent", "topic"])
def test_a_topic_in_full(scheme: str, name: str) -> None:
    """Its name may have anything in it but an option."""
    text = f"{scheme}://public/default/{name}"
    assert [topic.full_name for topic in topic_names([text])] == [text]
    for before in (" ", ",", " pulsar.client."):
        with pytest.raises(OptionError, match="put -o before") as caught:
            topic_names([f"{text}{before}authParams=token:{SECRET}"])
        assert SECRET not in str(caught.value)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["table", "json"])
@pytest.mark.parametrize(
    "command",
    [
        ("checkpoint", "CHECKPOINT"),
        ("checkpoint", "CHECKPOINT", "--set-position", "latest", "--yes"),
        ("lag", "CHECKPOINT"),
        ("subscriptions", "t", "--checkpoint", "CHECKPOINT"),
    ],
    ids=" ".join,
)
def test_in_the_uri_of_a_checkpoint(
    scripted: ScriptedBroker,
    stub: AdminStub,
    tmp_path: Path,
    run: Run,
    command: tuple[str, ...],
    form: tuple[str, ...],
) -> None:
    """A key in it is not shown where all is well, either."""
    scripted.add_topic(T)
    path = "GET /admin/v2/persistent/public/default/t"
    call = f"{path}/partitions?checkAllowAutoCreation=false"
    stub.answers[call] = 200, {"partitions": 0}
    owned = {"spark-pulsar-s": {"msgBacklog": 1, "isDurable": True}}
    stub.answers[f"{path}/stats"] = 200, {"subscriptions": owned}
    place = tmp_path / f"c?secret_key={SECRET}"
    write_checkpoint(place, {0: [offset({T: "7:0"})]}, 0)
    options = as_arguments({"service.url": scripted.url, "admin.url": stub.url})
    arguments = [f"file://{place}" if one == "CHECKPOINT" else one for one in command]
    _, printed = run(*arguments, *options, *form)
    assert "spark-pulsar-s" in printed or T in printed
    assert SECRET not in printed


@pytest.mark.parametrize(
    "text",
    [
        f'{{"pulsar.client.authParams": "token:{SECRET}"',
        f'{{"pulsar.client.authParams": ["{SECRET}"]}}',
        f"token:{SECRET}",
        f"pulsar.client.authParams=token:{SECRET}\n{SECRET}",
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, run: Run, text: str) -> None:
    """The error names the file and the line, and shows nothing of it."""
    path = tmp_path / "options"
    path.write_text(text)
    code, printed = run("doctor", "--options", path)
    assert code == 2
    assert SECRET not in printed


def test_options_of_a_file(
    scripted: ScriptedBroker, tmp_path: Path, folder: Path, run: Run
) -> None:
    """Both forms are read; what stands on the command line wins."""
    scripted.add_topic(T)
    lines = tmp_path / "lines"
    lines.write_text("# of the job\nservice.url = pulsar://127.0.0.1:1\n\ntopic=t\n")
    tree = tmp_path / "tree.json"
    tree.write_text(json.dumps({"service.url": scripted.url, "ackOnCommit": True}))
    code, _ = run("lag", folder, "--options", lines, "--options", tree)
    assert code == 0
    command = ("lag", folder, "--options", lines, "-o", f"service.url={scripted.url}")
    assert run(*command)[0] == 0


@pytest.mark.parametrize("form", ["topic=t\nrows=x\n", '{"topic": "t", "rows": "x"}'])
def test_a_file_that_an_editor_has_marked(tmp_path: Path, run: Run, form: str) -> None:
    """The mark is no part of the first name."""
    file = tmp_path / "options"
    file.write_text(form, encoding="utf-8-sig")
    code, printed = run("plan", "--options", file, "-o", "service.url=pulsar://h")
    assert code == 2
    assert printed.startswith("There is no option 'rows'.")


def test_a_file_that_the_environment_names(
    scripted: ScriptedBroker,
    tmp_path: Path,
    folder: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every command reads it first; what a command is given wins."""
    scripted.add_topic(T)
    file = tmp_path / "options"
    monkeypatch.setenv("PULSAR_SPARK_OPTIONS", str(file))
    file.write_text(f"service.url={scripted.url}\n")
    assert run("lag", folder)[0] == 0
    assert run("lag", folder, "-o", "service.url=pulsar://127.0.0.1:1 2")[0] == 2
    file.write_text("service.url=pulsar://127.0.0.1:1 2\n")
    assert run("lag", folder)[0] == 2
    given = ("--options", tmp_path / "given")
    given[1].write_text(f"service.url={scripted.url}\n")
    assert run("lag", folder, *given)[0] == 0
    monkeypatch.setenv("PULSAR_SPARK_OPTIONS", str(tmp_path / "absent"))
    code, printed = run("lag", folder)
    assert code == 2
    assert f"PULSAR_SPARK_OPTIONS {tmp_path / 'absent'} cannot be read" in printed


def test_later_ones_win_in_any_spelling(
    scripted: ScriptedBroker,
    tmp_path: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An option has several names, and case and dots in a name do not count."""
    scripted.add_topic(T)
    file = tmp_path / "options"
    monkeypatch.setenv("PULSAR_SPARK_OPTIONS", str(file))
    file.write_text("serviceUrl=pulsar://127.0.0.1:1\nTopic=other\nadminUrl=x\n")
    given = ("-o", "service.url=pulsar://127.0.0.1:2", "-o", f"topic={T}")
    later = ("-o", f"pulsar.client.serviceUrl={scripted.url}")
    assert run("peek", *given, *later) == (0, "No message.\n")


@pytest.mark.parametrize(
    ("service", "admin", "is_refused"),
    [
        ("pulsar+ssl://broker.example:6651", "http://broker.example:8080", True),
        ("", "http://broker.example:8080", True),
        ("pulsar://broker.example:6650", "http://broker.example:8080", False),
        ("pulsar+ssl://broker.example:6651", "https://broker.example:8443", False),
        ("pulsar+ssl://broker.example:6651", "http://localhost:8080", False),
    ],
)
@pytest.mark.parametrize("way", [TOKEN, LOGIN, {}], ids=["token", "basic", "none"])
def test_by_http_to_another_machine(
    service: str, admin: str, is_refused: bool, way: dict[str, str]
) -> None:
    """Only where brokers get the credential without TLS, too."""
    given = {**way, **({"service.url": service} if service else {})}
    if is_refused and way:
        with pytest.raises(OptionError, match="readable on its way") as caught:
            admin_of(admin, given)
        assert SECRET not in str(caught.value)
    else:
        assert admin_of(admin, given).url == admin


@pytest.mark.parametrize("admin", ["http://localhost:8080", "https://a.example:8443"])
@pytest.mark.parametrize(
    ("service", "options"),
    [
        ("pulsar://a", {FAILOVER: '{"secondary": ["pulsar://b"]}'}),
        (
            "pulsar+ssl://a",
            {
                FAILOVER: '{"primary": "pulsar+ssl://a", "secondary": ["pulsar+ssl://b"]}'
            },
        ),
        ("pulsar+ssl://a", {"pulsar.client.tlsTrustCertsFilePath": "/ca.pem"}),
        (
            "pulsar+ssl://a",
            {
                "pulsar.client.authPluginClassName": "tls",
                "pulsar.client.authParams": "tlsCertFile:/c,tlsKeyFile:/k",
            },
        ),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_the_options_of_a_job(
    admin: str, service: str, options: dict[str, str], *, is_named: bool
) -> None:
    """They suit the admin REST, too, with ``service.url`` or without."""
    given = {**options, **({"service.url": service} if is_named else {})}
    if is_named:
        parse_common_options(given)
    assert admin_of(admin, given).url == admin


@pytest.mark.parametrize(
    ("method", "params"),
    [("tls", "tlsCertFile:/c,tlsKeyFile:/k"), ("keystore", "keyStorePath:/s")],
)
def test_a_certificate_by_http(method: str, params: str) -> None:
    """It cannot be shown, so that no one would say who asks."""
    given = {
        "pulsar.client.authPluginClassName": method,
        "pulsar.client.authParams": params,
    }
    with pytest.raises(OptionError, match="no client certificate can be shown"):
        admin_of("http://broker.example:8080", given)
    url = "https://broker.example:8443"
    assert admin_of(url, given).url == url


@pytest.mark.parametrize("is_safe", [True, False])
@pytest.mark.parametrize("way", [TOKEN, LOGIN, {}], ids=["token", "basic", "none"])
def test_a_redirect_by_http_to_another_machine(
    stub: AdminStub,
    monkeypatch: pytest.MonkeyPatch,
    is_safe: bool,
    way: dict[str, str],
) -> None:
    """Is judged as the first address is, though that was this machine's."""
    far = "http://broker.example:8080/admin/v2/persistent/a/b"
    stub.answers["GET /admin/v2/persistent/a/b"] = 307, far
    service = "pulsar+ssl://broker:6651" if is_safe else "pulsar://broker:6650"
    asks = admin_of(stub.url, {"service.url": service, **way})
    with AdminStub() as proxy:  # for it the name has no address
        proxy.answers[f"GET {far}"] = 200, []
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        if is_safe and way:
            with pytest.raises(ProtocolError, match="readable on its way"):
                asks.topic_partitions("a/b")
            assert not proxy.asked
        else:
            assert asks.topic_partitions("a/b") == []
            ((_, asked, shown),) = proxy.asked
            assert (asked, bool(shown)) == (far, bool(way))
