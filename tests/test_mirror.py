# SPDX-License-Identifier: Apache-2.0
"""Where the test of a module is: each has one, at a place that follows from its own.

The test of ``room/module.py`` is ``tests/room/test_module.py``. A family of modules,
such as ``avro_plan`` and ``avro_parts``, may share ``test_avro.py``. For a module whose
promise shows elsewhere, such as in the module that uses it, `ELSEWHERE` names the test.
"""

from __future__ import annotations

from pathlib import Path

from tests.mutants.__main__ import TARGETS
from tests.support.products import PRODUCTS, ROOT, SIBLINGS, Product


def sibling_table(sibling: Product) -> str:
    """The table of a sibling, which is beside its tests."""
    return (sibling.tests / "elsewhere.txt").read_text()


#: Tests of modules without a test by their names, below the package's folder.
_TABLE = """
pulsar_spark/_version.py test_layers.py
pulsar_spark/arrow/message_columns.py arrow/test_decode.py
pulsar_spark/arrow/message_ids.py source/read/test_bulk.py
pulsar_spark/arrow/positions.py arrow/test_decode.py
pulsar_spark/arrow/runs.py source/read/test_bulk.py
pulsar_spark/arrow/sources.py arrow/test_decode.py
pulsar_spark/arrow/values/by_schema.py source/read/test_value_decoders.py
pulsar_spark/arrow/values/copy_encoder.py arrow/values/test_tombstones.py
pulsar_spark/arrow/values/grown.py arrow/values/test_avro.py
pulsar_spark/arrow/values/kinds.py arrow/test_round_trip.py
pulsar_spark/arrow/values/raw.py arrow/values/test_values.py
pulsar_spark/arrow/values/sql_types.py sink/test_schemas.py
pulsar_spark/cli/arguments.py cli/test_secrets.py
pulsar_spark/cli/backlogs.py cli/test_lag.py
pulsar_spark/cli/output.py cli/test_main.py
pulsar_spark/client/authentication/claims.py client/authentication/test_stored.py
pulsar_spark/client/authentication/token_server.py client/authentication/test_oauth2.py
pulsar_spark/client/connect.py client/test_connection.py
pulsar_spark/client/credentials.py client/authentication/test_stored.py
pulsar_spark/loops/avro.py arrow/values/test_avro.py
pulsar_spark/loops/avro_write.py arrow/values/test_avro_encoder.py
pulsar_spark/loops/json_text.py loops/test_fact.py
pulsar_spark/loops/json_values.py arrow/values/test_json.py
pulsar_spark/loops/protobuf_op.py loops/test_protobuf_values.py
pulsar_spark/options/names.py options/test_others.py
pulsar_spark/options/parse.py options/test_read.py
pulsar_spark/options/service_url.py options/test_client.py
pulsar_spark/options/unsupported.py options/test_others.py
pulsar_spark/options/values.py options/test_read.py
pulsar_spark/sink/base_write.py sink/test_driver.py
pulsar_spark/sink/logged_write.py sink/test_driver.py
pulsar_spark/sink/tally.py sink/test_exactly_once.py
pulsar_spark/sink/visibility.py sink/test_batch_commit.py
pulsar_spark/source/missing/hidden.py source/read/test_range_reader.py
pulsar_spark/source/missing/left_ledgers.py source/read/test_range_reader.py
pulsar_spark/source/missing/silence.py source/read/test_range_reader.py
pulsar_spark/source/plan/explicit_ends.py broker/test_ends.py
pulsar_spark/source/plan/read_task.py source/read/test_task.py
pulsar_spark/source/plan/value_columns.py source/plan/test_query_schema.py
pulsar_spark/source/read/chunk_search.py broker/test_special_topics.py
pulsar_spark/source/stream/held_rows.py broker/test_stream_faults.py
pulsar_spark/spark/batch.py spark/test_datasource.py
pulsar_spark/testing/guard.py testing/test_embedded_broker.py
pulsar_spark/testing/settings.py testing/test_embedded_broker.py
spark_topics/requirements.py ../../siblings/tests/test_requirements.py
spark_topics/arrow/types.py spark/test_schema.py
spark_topics/client/key_stores.py client/test_tls.py
spark_topics/columns.py spark/test_schema.py
spark_topics/errors.py options/test_spec.py
spark_topics/loops/memory.py arrow/test_memory.py
spark_topics/network.py client/test_transport.py
spark_topics/options/document.py options/test_spec.py
spark_topics/options/of_spark.py options/test_of_table.py
spark_topics/options/offsets.py ../../siblings/tests/test_offsets.py
spark_topics/options/times.py ../../siblings/tests/test_offsets.py
spark_topics/options/tls.py client/test_tls.py
spark_topics/options/values.py options/test_spec.py
spark_topics/sink/write.py spark/test_spark.py
spark_topics/source/source.py spark/test_spark.py
spark_topics/source/stream/position.py source/stream/test_checkpoint.py
spark_topics/spark/choice.py spark/test_adaptation.py
spark_topics/spark/reader.py spark/test_spark.py
spark_topics/spark/row_stream_writer.py spark/test_adaptation.py
spark_topics/spark/stream_reader.py spark/test_spark.py
spark_topics/spark/stream_reader_base.py spark/test_spark.py
spark_topics/spark/stream_writer.py spark/test_spark.py
spark_topics/spark/unlimited_stream_reader.py spark/test_adaptation.py
spark_topics/spark/writer.py spark/test_spark.py
spark_topics/system.py test_logs.py
spark_topics/text.py options/test_given.py
"""

ELSEWHERE = dict(
    line.split()
    for table in (_TABLE, *(sibling_table(one) for one in SIBLINGS.values()))
    for line in table.strip().splitlines()
)


def modules() -> list[str]:
    """All modules by their paths, without packages' own and generated ones."""
    return [
        path.relative_to(product.folder).as_posix()
        for package, product in PRODUCTS.items()
        for path in sorted((product.folder / package).rglob("*.py"))
        if not path.stem.startswith("__") and not path.stem.endswith("_pb2")
    ]


def mirrors(module: str) -> list[str]:
    """The places of its test by its name: the whole name, and its first words."""
    package, _, inside = module.partition("/")
    folder, _, name = inside.removesuffix(".py").rpartition("/")
    words = name.split("_")
    names = ["_".join(words[: len(words) - left]) for left in range(len(words))]
    tests = PRODUCTS[package].tests / folder
    return [str(tests / f"test_{name}.py") for name in names if name]


def mirror(module: str) -> str | None:
    """The first of these that exists."""
    return next((path for path in mirrors(module) if Path(path).exists()), None)


def test_each_module_has_a_test() -> None:
    """By its name, or by the table, and never by both."""
    problems = [
        f"Write {mirrors(module)[0]}, or name the test of {module} in ELSEWHERE."
        for module in modules()
        if (mirror(module) is None) != (module in ELSEWHERE)
    ]
    assert not problems, "\n".join(problems)


def test_the_table_leads_somewhere() -> None:
    """Its modules and its tests exist."""
    paths = []
    for module, test in ELSEWHERE.items():
        product = PRODUCTS[module.partition("/")[0]]
        paths += [product.folder / module, product.tests / test]
    assert [path for path in paths if not path.exists()] == []


def test_mutants_are_tested_by_what_exists() -> None:
    """Paths of `make mutants`, which runs seldom."""
    for target in TARGETS:
        assert target.path.exists()
        assert [f for f in target.files if not (ROOT / "tests" / f).exists()] == []
