// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;

/**
 * Drives a connector in Java or Scala on its own Spark. Arguments: a folder for Spark's
 * files, the format, "pulsar" or "kafka", and options of all jobs as name=value. Each line
 * that comes in is a command and its arguments with tabs between; each reply is "reply "
 * and a number: of seconds, or of rows for "count", or of restarts for "stop".
 */
public final class SparkProgram {
    private final SparkSession spark;
    private final String format;
    private final String folder;
    private final Map<String, String> further = new HashMap<>();
    private Dataset<Row> rows;
    private Thread stream;
    private volatile StreamingQuery query;
    private volatile boolean isStopping;
    private int restarts;

    private SparkProgram(String folder, String format) {
        this.folder = folder;
        this.format = format;
        spark = SparkSession.builder()
                .master("local[2]")
                .appName("bench")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.local.dir", folder)
                .config("spark.sql.warehouse.dir", folder + "/warehouse")
                .getOrCreate();
        spark.sparkContext().setLogLevel("WARN");
    }

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
        SparkProgram program = new SparkProgram(args[0], args[1]);
        for (int index = 2; index < args.length; index++) {
            String[] option = args[index].split("=", 2);
            program.further.put(option[0], option[1]);
        }
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            long began = System.nanoTime();
            Object answer = program.obey(line.split("\t"));
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("reply " + (answer == null ? seconds : answer));
        }
        program.spark.stop();
    }

    /** Returns the reply, null for the seconds that the command takes. */
    private Object obey(String[] words) throws Exception {
        switch (words[0]) {
            case "read": // service URL, topic, columns
                spark.read().format(format).options(reading(words)).load()
                        .selectExpr(words[3].split(","))
                        .write().format("noop").mode("overwrite").save();
                return null;
            case "show": // service URL, topic, rows
                int count = Integer.parseInt(words[3]);
                spark.read().format(format).options(reading(words)).load()
                        .select("value").limit(count).show(count);
                return null;
            case "count": // service URL, topic
                return spark.read().format(format).options(reading(words)).load().count();
            case "rows": // how many, input partitions, expressions of their id
                String[] expressions = Arrays.copyOfRange(words, 3, words.length);
                rows = spark.range(
                        0, Long.parseLong(words[1]), 1, Integer.parseInt(words[2]))
                        .selectExpr(expressions).cache();
                return rows.count();
            case "write": // service URL, topic, further options as name=value
                DataFrameWriter<Row> writer =
                        rows.write().format(format).mode("append").options(writing(words));
                for (int index = 3; index < words.length; index++) {
                    String[] option = words[index].split("=", 2);
                    writer = writer.option(option[0], option[1]);
                }
                writer.save();
                return null;
            case "stream": // service URL, topic, file for a line of each row
                stream = new Thread(() -> keepStreaming(words));
                stream.setDaemon(true);
                stream.start();
                return null;
            case "stop":
                isStopping = true;
                if (query != null) {
                    query.stop();
                }
                stream.join(30_000);
                return restarts;
            default:
                throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    /** A query that fails is started from its checkpoint again, as operators do. */
    private void keepStreaming(String[] words) {
        Path file = Path.of(words[3]);
        while (!isStopping) {
            try {
                query = spark.readStream().format(format).options(reading(words)).load()
                        .selectExpr("cast(value as string)")
                        .writeStream()
                        .foreachBatch((VoidFunction2<Dataset<Row>, Long>)
                                (batch, id) -> note(file, batch))
                        .option("checkpointLocation", folder + "/checkpoint")
                        .start();
                query.awaitTermination();
            } catch (Exception error) {
                System.err.println("the query failed: " + error);
            }
            if (!isStopping) {
                restarts++;
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(1000);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static void note(Path file, Dataset<Row> batch) throws IOException {
        StringBuilder lines = new StringBuilder();
        Row[] collected = (Row[]) batch.collect();
        long now = System.currentTimeMillis();
        for (Row row : collected) {
            String[] words = row.getString(0).split(" ");
            lines.append(words[0]).append(' ').append(words[1]).append(' ')
                    .append(now).append('\n');
        }
        Files.writeString(
                file, lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private Map<String, String> reading(String[] words) {
        Map<String, String> options = new HashMap<>(further);
        options.putAll(named(words, "subscribe"));
        options.put("startingOffsets", "earliest");
        return options;
    }

    private Map<String, String> writing(String[] words) {
        Map<String, String> options = new HashMap<>(further);
        options.putAll(named(words, "topic"));
        return options;
    }

    private Map<String, String> named(String[] words, String kafkaTopic) {
        return format.equals("kafka")
                ? Map.of("kafka.bootstrap.servers", words[1], kafkaTopic, words[2])
                : Map.of("service.url", words[1], "topic", words[2]);
    }
}
