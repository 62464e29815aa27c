// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes topics of Kafka, and sends rows to them at a steady pace. Commands: "create" with
 * server, topic and partitions; "send" with server, topic, first number, rows and rows a
 * second. "send" replies when the broker has all of them.
 */
public final class KafkaProgram {
    private KafkaProgram() {}

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
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            switch (words[0]) {
                case "create":
                    try (Admin admin = Admin.create(
                            Map.of("bootstrap.servers", (Object) words[1]))) {
                        NewTopic topic = new NewTopic(
                                words[2],
                                Optional.of(Integer.parseInt(words[3])),
                                Optional.empty());
                        admin.createTopics(List.of(topic)).all().get();
                    }
                    break;
                case "send":
                    send(words);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            System.out.println("reply 0");
        }
    }

    private static void send(String[] words) throws Exception {
        long first = Long.parseLong(words[3]);
        long rows = Long.parseLong(words[4]);
        double pauseNs = 1e9 / Double.parseDouble(words[5]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[1]);
        settings.put("delivery.timeout.ms", 300_000);
        settings.put("max.block.ms", 300_000);
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, bytes, bytes)) {
            long began = System.nanoTime();
            for (long index = 0; index < rows; index++) {
                long wait = began + (long) (index * pauseNs) - System.nanoTime();
                if (wait > 0) {
                    Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
                }
                String value = (first + index) + " " + System.currentTimeMillis() + " ";
                value += ".".repeat(100 - value.length());
                producer.send(new ProducerRecord<>(
                        words[2], value.getBytes(StandardCharsets.UTF_8)));
            }
            producer.flush();
        }
    }
}
