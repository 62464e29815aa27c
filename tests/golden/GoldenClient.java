// SPDX-License-Identifier: Apache-2.0
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * The official Java client, for capture.py.
 *
 * <p>{@code write URL PREFIX} produces the topics PREFIXjava_*. {@code read URL TOPIC...}
 * prints each message of the topics as a line of JSON; a topic with "+compacted" behind
 * its name is read compacted.
 */
class GoldenClient {
    public static void main(String[] args) throws Exception {
        try (PulsarClient client =
                PulsarClient.builder().serviceUrl(args[1]).enableTransaction(true).build()) {
            if (args[0].equals("write")) {
                new GoldenClient(client, args[2]).write();
            } else {
                for (String topic : Arrays.copyOfRange(args, 2, args.length)) {
                    read(client, topic);
                }
            }
        }
    }

    private final PulsarClient client;
    private final String prefix;

    GoldenClient(PulsarClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    private ProducerBuilder<byte[]> producer(String name) {
        return client.newProducer()
                .topic(prefix + name)
                .producerName("golden-java")
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .sendTimeout(0, TimeUnit.SECONDS);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    private static void send(Producer<byte[]> producer, List<TypedMessageBuilder<byte[]>> messages)
            throws Exception {
        List<CompletableFuture<MessageId>> sent =
                messages.stream().map(TypedMessageBuilder::sendAsync).toList();
        producer.flush();
        for (CompletableFuture<MessageId> one : sent) {
            one.get(30, TimeUnit.SECONDS);
        }
    }

    void write() throws Exception {
        for (CompressionType codec : CompressionType.values()) {
            String name = "java_batch_" + codec.name().toLowerCase();
            try (Producer<byte[]> to = producer(name).compressionType(codec).create()) {
                send(to, List.of(
                        to.newMessage().value(bytes("one ".repeat(10))),
                        to.newMessage().value(bytes("größer ".repeat(10))),
                        to.newMessage().value(bytes("three ".repeat(10)))));
            }
        }
        try (Producer<byte[]> to = producer("java_lone")
                .compressionType(CompressionType.ZLIB).create()) {
            send(to, List.of(to.newMessage().value(bytes("alone ".repeat(10)))));
        }
        try (Producer<byte[]> to = producer("java_fields_batch").create()) {
            send(to, fields(to));
        }
        try (Producer<byte[]> to =
                producer("java_fields_single").enableBatching(false).create()) {
            send(to, fields(to));
        }
        try (Producer<byte[]> to = producer("java_chunked")
                .enableBatching(false).enableChunking(true).chunkMaxMessageSize(100)
                .compressionType(CompressionType.LZ4).create()) {
            send(to, List.of(
                    to.newMessage().key("k").property("p", "q").eventTime(1_700_000_000_123L)
                            .value(incompressible(150)),
                    to.newMessage().value(bytes("small"))));
        }
        try (Producer<byte[]> to = producer("java_compacted").create()) {
            send(to, List.of(
                    to.newMessage().key("a").value(bytes("a1")),
                    to.newMessage().key("b").value(bytes("b1")),
                    to.newMessage().key("c").value(bytes("c1"))));
            send(to, List.of(
                    to.newMessage().key("a").value(bytes("a2")),
                    to.newMessage().key("c").value(null)));
        }
        transactions();
    }

    private List<TypedMessageBuilder<byte[]>> fields(Producer<byte[]> to) {
        return List.of(
                to.newMessage().key("schlüssel").value(bytes("key")),
                to.newMessage().keyBytes(new byte[] {0, -1, 7}).value(bytes("binary key")),
                to.newMessage().key("").value(bytes("empty key")),
                to.newMessage().orderingKey(new byte[] {-2, 1}).value(bytes("ordering key")),
                to.newMessage().properties(new TreeMap<>(Map.of("a", "1", "ä", "", "", "x")))
                        .value(bytes("properties")),
                to.newMessage().eventTime(1_700_000_000_123L).value(bytes("event time")),
                to.newMessage().sequenceId(100).value(bytes("sequence id")),
                to.newMessage().value(new byte[0]),
                to.newMessage().key("gone").value(null));
    }

    private static byte[] incompressible(int size) {
        byte[] data = new byte[size];
        new java.util.Random(7).nextBytes(data);
        return data;
    }

    private void transactions() throws Exception {
        try (Producer<byte[]> to = producer("java_transaction").create()) {
            for (String fate : List.of("committed", "aborted")) {
                Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
                send(to, List.of(
                        to.newMessage(transaction).value(bytes(fate + " 1")),
                        to.newMessage(transaction).value(bytes(fate + " 2"))));
                (fate.equals("committed") ? transaction.commit() : transaction.abort()).get();
            }
            send(to, List.of(to.newMessage().value(bytes("plain"))));
        }
    }

    private static void read(PulsarClient client, String topic) throws Exception {
        boolean compacted = topic.endsWith("+compacted");
        String name = compacted ? topic.substring(0, topic.length() - 10) : topic;
        try (Reader<byte[]> reader = client.newReader().topic(name)
                .startMessageId(MessageId.earliest).readCompacted(compacted).create()) {
            while (reader.hasMessageAvailable()) {
                System.out.println("ROW {\"topic\": " + text(topic) + ", " + row(reader.readNext()) + "}");
            }
        }
    }

    private static String row(Message<byte[]> message) {
        String key = "null";
        if (message.hasKey()) {
            key = hex(message.hasBase64EncodedKey() ? message.getKeyBytes() : bytes(message.getKey()));
        }
        String properties = message.getProperties().entrySet().stream()
                .map(one -> text(one.getKey()) + ": " + text(one.getValue()))
                .collect(Collectors.joining(", ", "{", "}"));
        return String.join(", ",
                "\"value\": " + hex(message.getValue()),
                "\"__key\": " + key,
                "\"__messageId\": " + hex(message.getMessageId().toByteArray()),
                "\"__publishTime\": " + message.getPublishTime(),
                "\"__eventTime\": " + (message.getEventTime() == 0 ? "null" : message.getEventTime()),
                "\"__messageProperties\": " + properties,
                "\"__orderingKey\": " + (message.hasOrderingKey() ? hex(message.getOrderingKey()) : "null"),
                "\"__producerName\": " + text(message.getProducerName()),
                "\"__sequenceId\": " + message.getSequenceId(),
                "\"__brokerPublishTime\": " + message.getBrokerPublishTime().map(String::valueOf).orElse("null"),
                "\"__index\": " + message.getIndex().map(String::valueOf).orElse("null"));
    }

    private static String hex(byte[] data) {
        return data == null ? "null" : '"' + HexFormat.of().formatHex(data) + '"';
    }

    /** JSON text, for names that need no escapes but those of other alphabets. */
    private static String text(String value) {
        return value.chars()
                .mapToObj(c -> c < 128 ? String.valueOf((char) c) : String.format("\\u%04x", c))
                .collect(Collectors.joining("", "\"", "\""));
    }
}
