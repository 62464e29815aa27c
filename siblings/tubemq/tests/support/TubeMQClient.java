// SPDX-License-Identifier: Apache-2.0
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.inlong.tubemq.client.common.ConfirmResult;
import org.apache.inlong.tubemq.client.common.ConsumeResult;
import org.apache.inlong.tubemq.client.common.QueryMetaResult;
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.config.TubeClientConfig;
import org.apache.inlong.tubemq.client.consumer.ClientBalanceConsumer;
import org.apache.inlong.tubemq.client.factory.MessageSessionFactory;
import org.apache.inlong.tubemq.client.factory.TubeSingleSessionFactory;
import org.apache.inlong.tubemq.client.producer.MessageProducer;
import org.apache.inlong.tubemq.client.producer.MessageSentResult;
import org.apache.inlong.tubemq.corebase.Message;
import org.apache.inlong.tubemq.corebase.rv.ProcessResult;

/**
 * The official Java client, for test_java_client.py and bench_tubemq.py.
 *
 * <p>{@code write MASTERS TOPIC COUNT} sends messages of every kind in turn, and prints each
 * as it is stored. {@code read MASTERS TOPIC GROUP TYPES ENDS} prints the messages of the
 * types, by comma, or all for "-", up to the ends: {@code partition=offset}, by comma. {@code
 * drain}, with the same words, prints how many they are and how many seconds it took.
 *
 * <p>A line is "tube" and partition, offset, type, time, attributes and value with tabs
 * between, the last four in base64, and "-" for what there is not. Other lines are not ours.
 */
class TubeMQClient {
    private static final String[] TYPES = {"A", "B", "Aa", "BB"};

    public static void main(String[] args) {
        int code = 0;
        try {
            switch (args[0]) {
                case "write" -> write(args[1], args[2], Integer.parseInt(args[3]));
                default -> read(args[0].equals("read"), args);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(code); // the client has threads that stay
    }

    // -- writing -------------------------------------------------------------------------

    private static void write(String masters, String topic, int count) throws Throwable {
        MessageSessionFactory sessions =
                new TubeSingleSessionFactory(new TubeClientConfig(masters));
        MessageProducer producer = sessions.createProducer();
        producer.publish(topic);
        for (int number = 0; number < count; number++) {
            Message message = message(topic, number);
            MessageSentResult sent = producer.sendMessage(message);
            if (!sent.isSuccess()) {
                throw new IllegalStateException(sent.getErrCode() + " " + sent.getErrMsg());
            }
            byte[] value = message.getData();
            if ("".equals(message.getAttribute())) { // the size of its attributes is ours
                value = Arrays.copyOfRange(value, 4, value.length);
            }
            print(sent.getPartition().getPartitionId(), sent.getAppendOffset(), message, value);
        }
        sessions.shutdown();
    }

    private static Message message(String topic, int number) {
        Message message = new Message(topic, value(number));
        switch (number % 8) {
            case 2 -> message.putSystemHeader(TYPES[number / 8 % 4], null);
            case 3 -> message.putSystemHeader(null, "202611230815");
            case 4 -> {
                message.setAttrKeyVal("key", "größer");
                message.setAttrKeyVal("number", Integer.toString(number));
                message.putSystemHeader(TYPES[number / 8 % 4], "202611230816");
            }
            case 5 -> message.setAttrKeyVal("only", "attributes");
            case 6 -> message.clearAttribute();
            default -> { }
        }
        return message;
    }

    /** Text, all bytes there are, many chunks, and attributes of no bytes. */
    private static byte[] value(int number) {
        byte[] text = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
        int room = switch (number % 8) {
            case 1 -> 256;
            case 6 -> 4;
            case 7 -> 70_000;
            default -> 0;
        };
        byte[] value = new byte[room + text.length];
        if (number % 8 != 6) {
            for (int at = 0; at < room; at++) {
                value[at] = (byte) at;
            }
        }
        System.arraycopy(text, 0, value, room, text.length);
        return value;
    }

    // -- reading -------------------------------------------------------------------------

    private static void read(boolean prints, String[] args) throws Throwable {
        ConsumerConfig config = new ConsumerConfig(args[1], args[3]);
        MessageSessionFactory sessions = new TubeSingleSessionFactory(config);
        ClientBalanceConsumer consumer = sessions.createBalanceConsumer(config);
        TreeSet<String> types = new TreeSet<>();
        if (!args[4].equals("-")) {
            types.addAll(List.of(args[4].split(",")));
        }
        ProcessResult result = new ProcessResult();
        Map<String, TreeSet<String>> topics = Map.of(args[2], types);
        check(consumer.start(topics, 1, 0, result), result);
        QueryMetaResult found = new QueryMetaResult();
        if (!consumer.getPartitionMetaInfo(found)) {
            throw new IllegalStateException(found.getErrMsg());
        }
        Map<Integer, Long> ends = ends(args[5]);
        Map<String, Long> left = new HashMap<>();
        for (String key : found.getPartStatusMap().keySet()) {
            Long end = ends.get(partition(key));
            if (end != null && end > 0) {
                left.put(key, end);
            }
        }
        long began = System.nanoTime();
        for (String key : left.keySet()) {
            check(consumer.connect2Partition(key, 0, result), result);
        }
        long rows = take(consumer, left, prints);
        double seconds = (System.nanoTime() - began) / 1e9;
        if (!prints) {
            System.out.println("tube\t" + rows + "\t" + seconds);
        }
    }

    /** One thread for each partition, until all have got to their ends. */
    private static long take(
            ClientBalanceConsumer consumer, Map<String, Long> left, boolean prints)
            throws Exception {
        AtomicLong rows = new AtomicLong();
        CountDownLatch partitions = new CountDownLatch(left.size());
        int threads = prints ? 1 : left.size();
        for (int at = 0; at < threads; at++) {
            Thread thread = new Thread(() -> {
                try {
                    takeSome(consumer, left, prints, rows, partitions);
                } catch (Throwable error) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
            thread.setDaemon(true); // it may wait for a partition that never comes
            thread.start();
        }
        partitions.await();
        return rows.get();
    }

    private static void takeSome(
            ClientBalanceConsumer consumer, Map<String, Long> left, boolean prints,
            AtomicLong rows, CountDownLatch partitions) throws Exception {
        ConsumeResult got = new ConsumeResult();
        ConfirmResult confirmed = new ConfirmResult();
        ProcessResult result = new ProcessResult();
        while (partitions.getCount() > 0) {
            if (!consumer.getMessage(got)) {
                continue; // nothing at the moment, or others have all partitions
            }
            rows.addAndGet(got.getMessageList().size());
            if (prints) {
                for (Message message : got.getMessageList()) {
                    print(partition(got.getPartitionKey()), -1, message, message.getData());
                }
            }
            consumer.confirmConsume(got.getConfirmContext(), true, confirmed);
            String key = got.getPartitionKey();
            synchronized (left) {
                Long end = left.get(key);
                if (end != null && confirmed.getCurrOffset() >= end) {
                    left.remove(key);
                    consumer.disconnectFromPartition(key, result);
                    partitions.countDown();
                }
            }
        }
    }

    private static Map<Integer, Long> ends(String text) {
        Map<Integer, Long> ends = new HashMap<>();
        for (String part : text.split(",")) {
            String[] words = part.split("=");
            ends.put(Integer.valueOf(words[0]), Long.valueOf(words[1]));
        }
        return ends;
    }

    /** The number at the end of {@code broker:topic:partition}. */
    private static int partition(String key) {
        return Integer.parseInt(key.substring(key.lastIndexOf(':') + 1));
    }

    private static void check(boolean success, ProcessResult result) {
        if (!success) {
            throw new IllegalStateException(result.getErrCode() + " " + result.getErrMsg());
        }
    }

    private static void print(int partition, long offset, Message message, byte[] value) {
        System.out.println(String.join(
                "\t",
                "tube",
                Integer.toString(partition),
                Long.toString(offset),
                text(message.getMsgType()),
                text(message.getMsgTime()),
                text(message.getAttribute()),
                Base64.getEncoder().encodeToString(value)));
    }

    private static String text(String text) {
        if (text == null || text.isEmpty()) {
            return "-";
        }
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
