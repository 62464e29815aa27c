// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.DataFrameWriter;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;

/**
 * Drives the other connector for bench_peer.py. Each line that comes in is a command and
 * its arguments with tabs between; each one that goes out is "peer " and a number: of
 * seconds, or of rows for "count".
 */
public final class Peer {
    private Peer() {}

    public static void main(String[] args) throws Exception {
        SparkSession spark = SparkSession.builder()
                .master("local[2]")
                .appName("bench-peer")
                .config("spark.ui.enabled", "false")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.local.dir", args[0])
                .config("spark.sql.warehouse.dir", args[0] + "/warehouse")
                .getOrCreate();
        spark.sparkContext().setLogLevel("WARN");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        Dataset<Row> rows = null;
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            long began = System.nanoTime();
            Object answer = null;
            switch (words[0]) {
                case "read": // service URL, topic, columns
                    load(spark, words).selectExpr(words[3].split(","))
                            .write().format("noop").mode("overwrite").save();
                    break;
                case "count": // service URL, topic
                    answer = load(spark, words).count();
                    break;
                case "rows": // how many, input partitions, expressions of their id
                    String[] expressions = Arrays.copyOfRange(words, 3, words.length);
                    rows = spark.range(
                            0, Long.parseLong(words[1]), 1, Integer.parseInt(words[2]))
                            .selectExpr(expressions).cache();
                    rows.count();
                    break;
                case "write": // service URL, topic, further options as name=value
                    DataFrameWriter<Row> writer =
                            rows.write().format("pulsar").mode("append")
                            .options(options(words));
                    for (int at = 3; at < words.length; at++) {
                        String[] option = words[at].split("=", 2);
                        writer = writer.option(option[0], option[1]);
                    }
                    writer.save();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("peer " + (answer == null ? seconds : answer));
        }
        spark.stop();
        System.exit(0); // the connector's client has threads that stay
    }

    private static Dataset<Row> load(SparkSession spark, String[] words) {
        return spark.read().format("pulsar").options(options(words)).load();
    }

    private static Map<String, String> options(String[] words) {
        return Map.of("service.url", words[1], "topic", words[2]);
    }
}
