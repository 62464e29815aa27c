// SPDX-License-Identifier: Apache-2.0
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.CheckpointConsumer;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.async.AsyncProducer;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * The official client of Pulsar 5 with scalable topics, for test_scalable_soak.py.
 *
 * <p>{@code write URL TOPIC RATE} writes numbers, each with one of 50 keys, until its
 * standard input ends. It prints how many were acknowledged, and how many were not.
 *
 * <p>{@code copy URL TOPIC FOLDER} appends what a checkpoint consumer receives to the file
 * {@code rows}, a value a line. The file {@code checkpoint} has the consumer's checkpoint,
 * and how long {@code rows} was at that time. After a kill it goes on from both: a row that
 * is there twice, or lacks, is the consumer's doing.
 */
class ScalableClient {
    private static final int KEYS = 50;
    private static final int MOST = 500;

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client =
                PulsarClient.builder().serviceUrl(arguments[1]).build()) {
            if (arguments[0].equals("write")) {
                write(client, arguments[2], Integer.parseInt(arguments[3]));
            } else {
                copy(client, arguments[2], Path.of(arguments[3]));
            }
        }
    }

    private static void write(PulsarClient client, String topic, int perSecond)
            throws Exception {
        long acknowledged = 0;
        long failed = 0;
        try (Producer<String> producer =
                client.newProducer(Schema.string()).topic(topic).create()) {
            AsyncProducer<String> async = producer.async();
            long number = 0;
            int each = Math.max(1, perSecond / 20);
            while (System.in.available() == 0) {
                List<CompletableFuture<?>> sent = new ArrayList<>();
                for (int i = 0; i < each; i++, number++) {
                    sent.add(
                            async.newMessage()
                                    .key("k" + number % KEYS)
                                    .value(Long.toString(number))
                                    .send());
                }
                for (CompletableFuture<?> one : sent) {
                    try {
                        one.get();
                        acknowledged++;
                    } catch (Exception e) {
                        failed++;
                    }
                }
                Thread.sleep(50);
            }
        }
        System.out.println(acknowledged + " " + failed);
    }

    private static void copy(PulsarClient client, String topic, Path folder)
            throws Exception {
        Path state = folder.resolve("checkpoint");
        Checkpoint start = Checkpoint.earliest();
        long length = 0;
        if (Files.exists(state)) {
            ByteBuffer saved = ByteBuffer.wrap(Files.readAllBytes(state));
            length = saved.getLong();
            byte[] bytes = new byte[saved.remaining()];
            saved.get(bytes);
            start = Checkpoint.fromByteArray(bytes);
        }
        try (RandomAccessFile rows =
                        new RandomAccessFile(folder.resolve("rows").toFile(), "rw");
                CheckpointConsumer<String> consumer =
                        client.newCheckpointConsumer(Schema.string())
                                .topic(topic)
                                .startPosition(start)
                                .create()) {
            rows.setLength(length);
            rows.seek(length);
            while (true) {
                StringBuilder lines = new StringBuilder();
                for (Message<String> message :
                        consumer.receiveMulti(MOST, Duration.ofMillis(200))) {
                    lines.append(message.value()).append('\n');
                }
                rows.write(lines.toString().getBytes(StandardCharsets.UTF_8));
                byte[] bytes = consumer.checkpoint().toByteArray();
                ByteBuffer saved = ByteBuffer.allocate(Long.BYTES + bytes.length);
                saved.putLong(rows.getFilePointer()).put(bytes);
                Path next = folder.resolve("checkpoint-next");
                Files.write(next, saved.array());
                Files.move(next, state, StandardCopyOption.ATOMIC_MOVE);
            }
        }
    }
}
