# SPDX-License-Identifier: Apache-2.0
"""What any messaging system needs to be tables and streams of Spark, in Python.

Nothing here knows a messaging system. A package for one is on this one, next to
``pulsar_spark``, and plugs in, in the order in which one is written:

1. Errors: classes below its own root, each one of the kinds in ``errors``. A
   ``system.System`` names them, and what messages and loggers call the system.
2. Options: dataclasses whose fields are made by ``options.spec.option``, all of them
   in ``options.given.KnownOptions``, read by ``Given``; secrets as a subclass of
   ``options.secrets.Secret``. ``options.document`` writes the table for its users.
3. Its protocol, which is its own. Beneath it there are TCP and TLS
   (``client.transport``, for a ``network.Network`` that says how errors speak), memory
   to receive into (``client.buffers``), and trying again (``client.retry``).
4. Columns: a table of ``columns.Column``, and what makes Arrow arrays of messages.
5. A batch read: a ``source.source.Source`` whose plan is ranges, cut by
   ``source.parts`` and put together by ``source.grouping``, and whose tasks are turns
   of ``source.turns``.
6. A stream: ``Topics``, ``Entries`` and ``Cluster`` of ``source.stream.cluster``, in
   one class or several, whose positions have an order and a text
   (``source.stream.position``), and a class of offsets, a subclass of
   ``source.stream.checkpoint.StreamOffset``. It gets discovery, limits,
   ``availableNow``, checkpoints, progress and reports of data loss.
7. Writes: a ``sink.write.BatchWrite`` and a ``StreamWrite``.
8. A ``spark.datasource.TopicDataSource`` that reads options, checks columns
   (``spark.schema``), and returns its writes, ``spark.reader.BatchReader`` and, by
   Spark's version, what ``spark.choice`` gives for streams.

All of it in one small file: ``tests/spark_topics/spark/number_source.py``. And for
every task lines of statistics (``statistics``), on one line each whatever topics are
called (``logs``).
"""
