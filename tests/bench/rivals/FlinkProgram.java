// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.restartstrategy.RestartStrategies;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.connector.pulsar.source.PulsarSource;
import org.apache.flink.connector.pulsar.source.PulsarSourceBuilder;
import org.apache.flink.connector.pulsar.source.enumerator.cursor.StartCursor;
import org.apache.flink.connector.pulsar.source.enumerator.cursor.StopCursor;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.SinkFunction;

/**
 * Drives Flink's Pulsar connector in a cluster within this process, two tasks side by
 * side. The commands "count", "read", "stream" and "stop" are those of SparkProgram. A
 * stream has a checkpoint each second, and goes on from the last one after a failure by
 * itself, so that "stop" always replies 0.
 */
public final class FlinkProgram {
    private static final Object LOCK = new Object();
    private static final LongAdder ROWS = new LongAdder();

    private FlinkProgram() {}

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
        JobClient job = null;
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
                case "stream":
                    job = stream(words[1], words[2], words[3]);
                    break;
                case "stop":
                    answer = 0;
                    job.cancel().get(30, TimeUnit.SECONDS);
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("reply " + (answer == null ? seconds : answer));
        }
    }

    private static long count(String url, String topic) throws Exception {
        StreamExecutionEnvironment flink = environment();
        PulsarSource<String> source =
                source(url, topic).setBoundedStopCursor(StopCursor.latest()).build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "pulsar")
                .addSink(new Counter());
        ROWS.reset();
        flink.execute();
        return ROWS.sum();
    }

    private static JobClient stream(String url, String topic, String file)
            throws Exception {
        StreamExecutionEnvironment flink = environment();
        flink.enableCheckpointing(1000);
        flink.setRestartStrategy(RestartStrategies.fixedDelayRestart(1000, 1000L));
        PulsarSource<String> source = source(url, topic).build();
        flink.fromSource(source, WatermarkStrategy.noWatermarks(), "pulsar")
                .addSink(new Lines(file));
        return flink.executeAsync();
    }

    private static PulsarSourceBuilder<String> source(String url, String topic) {
        return PulsarSource.builder()
                .setServiceUrl(url)
                .setStartCursor(StartCursor.earliest())
                .setTopics(topic)
                .setSubscriptionName("bench-" + System.nanoTime())
                .setDeserializationSchema(new SimpleStringSchema());
    }

    private static StreamExecutionEnvironment environment() {
        return StreamExecutionEnvironment.getExecutionEnvironment().setParallelism(2);
    }

    /** Counts the rows of a read. */
    private static final class Counter implements SinkFunction<String> {
        private static final long serialVersionUID = 1L;

        @Override
        public void invoke(String value, Context context) {
            ROWS.increment();
        }
    }

    /** Writes a line of each row. */
    private static final class Lines implements SinkFunction<String> {
        private static final long serialVersionUID = 1L;
        private final String file;

        Lines(String file) {
            this.file = file;
        }

        @Override
        public void invoke(String value, Context context) throws Exception {
            String[] words = value.split(" ");
            String line =
                    words[0] + " " + words[1] + " " + System.currentTimeMillis() + "\n";
            synchronized (LOCK) {
                Files.writeString(Path.of(file), line,
                        StandardOpenOption.CREATE, StandardOpenOption.APPEND);
            }
        }
    }
}
