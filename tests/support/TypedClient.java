// SPDX-License-Identifier: Apache-2.0
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneId;
import java.util.Base64;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * The official Java client with schemas of its own classes, for test_typed_java.py.
 *
 * <p>It is given the URL, does what each line of its input says, prints {@code done}, and
 * ends with its input. {@code WHAT TOPIC ROUND} sends the messages of a round: {@code avro}
 * and {@code json} three versions of a record in turn, {@code inline} and {@code separated}
 * changes of a table as Debezium has them, of which the second round has a column more.
 * {@code register-avro} and {@code register-json} only register a record of values of all
 * kinds, with the JSR 310 conversion in the second round; {@code values-avro} and {@code
 * values-json} print those of as many messages as the round's number says. {@code dates}
 * prints moments of the schema DATE by their day in the zone New York.
 */
class TypedClient {
    public static class User1 {
        public long id;
        public String name;
    }

    public static class User2 {
        public long id;
        public String mail;
        public String name;
    }

    public static class User3 {
        public long id;
        public String mail;
        public String name;
        public Double score;
    }

    public static class Id {
        public int id;
    }

    public static class Row1 {
        public int id;
        public String name;
    }

    public static class Row2 {
        public int id;
        public String name;
        public Double weight;
    }

    public static class Change1 {
        public Row1 before;
        public Row1 after;
        public String op;
        public Long ts_ms;
    }

    public static class Change2 {
        public Row2 before;
        public Row2 after;
        public String op;
        public Long ts_ms;
    }

    public enum Color {
        RED,
        GREEN
    }

    public static class Values {
        public byte[] bytes;
        public Color color;
        public BigDecimal amount;
        public LocalDate day;
        public Double number;
        public LocalDateTime local;
        public Instant moment;
        public Float small;
        public String text;
        public LocalTime time;
    }

    private final PulsarClient client;
    private final String topic;

    TypedClient(PulsarClient client, String topic) {
        this.client = client;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build()) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] words = line.split(" ");
                new TypedClient(client, words[1]).follow(words[0], Integer.parseInt(words[2]));
                System.out.println("done");
            }
        }
    }

    private void follow(String what, int round) throws Exception {
        switch (what) {
            case "avro" -> users(true);
            case "json" -> users(false);
            case "register-avro" -> register(true, round == 2);
            case "register-json" -> register(false, round == 2);
            case "values-avro" -> printValues(true, round);
            case "values-json" -> printValues(false, round);
            case "dates" -> printDates(round);
            default -> changes(KeyValueEncodingType.valueOf(what.toUpperCase()), round);
        }
    }

    private <T> Schema<T> schema(Class<T> type, boolean avro) {
        SchemaDefinition<T> definition =
                SchemaDefinition.<T>builder().withPojo(type).withAlwaysAllowNull(true).build();
        return avro ? Schema.AVRO(definition) : Schema.JSON(definition);
    }

    private Schema<Values> values(boolean avro, boolean jsr310) {
        SchemaDefinition<Values> definition =
                SchemaDefinition.<Values>builder()
                        .withPojo(Values.class)
                        .withJSR310ConversionEnabled(jsr310)
                        .build();
        return avro ? Schema.AVRO(definition) : Schema.JSON(definition);
    }

    private void register(boolean avro, boolean jsr310) throws Exception {
        client.newProducer(values(avro, jsr310)).topic(topic).create().close();
    }

    private <T> Consumer<T> consumer(Schema<T> schema) throws Exception {
        return client.newConsumer(schema)
                .topic(topic)
                .subscriptionName("values")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private void printValues(boolean avro, int count) throws Exception {
        Consumer<Values> consumer = consumer(values(avro, false));
        for (int at = 0; at < count; at++) {
            Message<Values> message = consumer.receive(60, TimeUnit.SECONDS);
            Values one = message.getValue();
            print(
                    String.join(
                            "|",
                            one.bytes == null ? "null" : Base64.getEncoder().encodeToString(one.bytes),
                            String.valueOf(one.color),
                            String.valueOf(one.amount),
                            one.day == null ? "null" : String.valueOf(one.day.toEpochDay()),
                            String.valueOf(one.number),
                            one.local == null
                                    ? "null"
                                    : micros(one.local.toInstant(java.time.ZoneOffset.UTC)),
                            one.moment == null ? "null" : micros(one.moment),
                            String.valueOf(one.small),
                            String.valueOf(one.text),
                            one.time == null ? "null" : String.valueOf(one.time.toNanoOfDay() / 1000)));
        }
    }

    /** Prints a line that no logger prints. */
    private static void print(String text) {
        System.out.println("value: " + text);
    }

    private static String micros(Instant moment) {
        return String.valueOf(moment.getEpochSecond() * 1_000_000 + moment.getNano() / 1000);
    }

    private void printDates(int count) throws Exception {
        ZoneId zone = ZoneId.of("America/New_York");
        Consumer<java.util.Date> consumer = consumer(Schema.DATE);
        for (int at = 0; at < count; at++) {
            Message<java.util.Date> message = consumer.receive(60, TimeUnit.SECONDS);
            print(message.getValue().toInstant().atZone(zone).toLocalDate().toString());
        }
    }

    private void users(boolean avro) throws Exception {
        Producer<User1> first = client.newProducer(schema(User1.class, avro)).topic(topic).create();
        Producer<User2> second = client.newProducer(schema(User2.class, avro)).topic(topic).create();
        Producer<User3> third = client.newProducer(schema(User3.class, avro)).topic(topic).create();
        for (int at = 0; at < 2; at++) {
            User1 one = new User1();
            one.id = 3 * at;
            one.name = "größer";
            first.send(one);
            User2 two = new User2();
            two.id = 3 * at + 1;
            two.mail = "m";
            second.send(two);
            User3 three = new User3();
            three.id = 3 * at + 2;
            three.name = "c";
            three.score = 2.5;
            third.send(three);
        }
        third.newMessage().value(null).send();
    }

    private void changes(KeyValueEncodingType encoding, int round) throws Exception {
        Id key = new Id();
        key.id = 100 + round;
        if (round == 1) {
            Schema<KeyValue<Id, Change1>> schema =
                    Schema.KeyValue(schema(Id.class, true), schema(Change1.class, true), encoding);
            Producer<KeyValue<Id, Change1>> producer =
                    client.newProducer(schema).topic(topic).create();
            Change1 change = new Change1();
            change.after = new Row1();
            change.after.id = key.id;
            change.after.name = "anna";
            change.op = "c";
            change.ts_ms = 1L;
            producer.send(new KeyValue<>(key, change));
            change.before = change.after;
            change.after = null;
            change.op = "d";
            producer.send(new KeyValue<>(key, change));
            producer.send(new KeyValue<>(key, null));
            return;
        }
        Schema<KeyValue<Id, Change2>> schema =
                Schema.KeyValue(schema(Id.class, true), schema(Change2.class, true), encoding);
        Producer<KeyValue<Id, Change2>> producer = client.newProducer(schema).topic(topic).create();
        Change2 change = new Change2();
        change.after = new Row2();
        change.after.id = key.id;
        change.after.weight = 1.5;
        change.op = "c";
        producer.send(new KeyValue<>(key, change));
        producer.send(new KeyValue<>(key, null));
    }
}
