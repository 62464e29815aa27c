// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;

/**
 * Reads by the official Java client, a Reader and a thread for each topic partition, and
 * writes by one Producer. The commands are those of SparkProgram, but for "rows", which is
 * given the size of the values instead of expressions; "stop" always replies 0.
 */
public final class ClientProgram {
    /** How many values are written in turns. */
    private static final int VALUES = 1000;

    private static final ExecutorService THREADS = Executors.newCachedThreadPool();
    private static volatile boolean isStopping;

    private ClientProgram() {}

    public static void main(String[] args) {
        try {
            run(args);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // threads of clients would go on
        }
    }

    private static void run(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        long rows = 0;
        int size = 0;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            long began = System.nanoTime();
            Object answer = null;
            switch (words[0]) {
                case "read":
                    count(words[1], words[2]);
                    break;
                case "count":
                    answer = count(words[1], words[2]);
                    break;
                case "rows":
                    rows = Long.parseLong(words[1]);
                    size = Integer.parseInt(words[3]);
                    answer = rows;
                    break;
                case "write":
                    write(words[1], words[2], rows, size);
                    break;
                case "stream":
                    stream(words[1], words[2], Path.of(words[3]));
                    break;
                case "stop":
                    answer = 0;
                    isStopping = true;
                    THREADS.shutdown();
                    THREADS.awaitTermination(30, TimeUnit.SECONDS);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("reply " + (answer == null ? seconds : answer));
        }
    }

    private static long count(String url, String topic) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build()) {
            List<Future<Long>> counts = new ArrayList<>();
            for (String partition : client.getPartitionsForTopic(topic).get()) {
                counts.add(THREADS.submit(() -> {
                    long count = 0;
                    try (Reader<byte[]> reader = reader(client, partition)) {
                        while (reader.hasMessageAvailable()) {
                            count += reader.readNext().getData().length > 0 ? 1 : 0;
                        }
                    }
                    return count;
                }));
            }
            long rows = 0;
            for (Future<Long> count : counts) {
                rows += count.get();
            }
            return rows;
        }
    }

    private static void write(String url, String topic, long rows, int size)
            throws Exception {
        byte[][] values = new byte[VALUES][size];
        Random random = new Random(1);
        for (byte[] value : values) {
            random.nextBytes(value);
        }
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
                Producer<byte[]> producer = client.newProducer()
                        .topic(topic).blockIfQueueFull(true).create()) {
            for (long row = 0; row < rows; row++) {
                producer.sendAsync(values[(int) (row % VALUES)]).exceptionally(error -> {
                    failure.set(error);
                    return null;
                });
            }
            producer.flush();
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private static void stream(String url, String topic, Path file) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
        for (String partition : client.getPartitionsForTopic(topic).get()) {
            Reader<byte[]> reader = reader(client, partition);
            THREADS.submit(() -> {
                while (!isStopping) {
                    Message<byte[]> message = reader.readNext(1, TimeUnit.SECONDS);
                    if (message != null) {
                        note(file, new String(message.getData(), StandardCharsets.UTF_8));
                    }
                }
                return null;
            });
        }
    }

    private static synchronized void note(Path file, String value) throws Exception {
        String[] words = value.split(" ");
        String line = words[0] + " " + words[1] + " " + System.currentTimeMillis() + "\n";
        Files.writeString(
                file, line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static Reader<byte[]> reader(PulsarClient client, String topic)
            throws Exception {
        return client.newReader()
                .topic(topic)
                .startMessageId(MessageId.earliest)
                .create();
    }
}
