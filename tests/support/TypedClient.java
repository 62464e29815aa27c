// SPDX-License-Identifier: Apache-2.0
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/**
 * The official Java client with schemas of its own classes, for test_typed_java.py.
 *
 * <p>{@code WHAT URL TOPIC ROUND} sends the messages of a round: {@code avro} and {@code
 * json} three versions of a record in turn, {@code inline} and {@code separated} changes of
 * a table as Debezium has them, of which the second round has a column more.
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

    private final PulsarClient client;
    private final String topic;

    TypedClient(PulsarClient client, String topic) {
        this.client = client;
        this.topic = topic;
    }

    public static void main(String[] args) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(args[1]).build()) {
            TypedClient one = new TypedClient(client, args[2]);
            int round = Integer.parseInt(args[3]);
            switch (args[0]) {
                case "avro" -> one.users(true);
                case "json" -> one.users(false);
                default -> one.changes(
                        KeyValueEncodingType.valueOf(args[0].toUpperCase()), round);
            }
        }
    }

    private <T> Schema<T> schema(Class<T> type, boolean avro) {
        SchemaDefinition<T> definition =
                SchemaDefinition.<T>builder().withPojo(type).withAlwaysAllowNull(true).build();
        return avro ? Schema.AVRO(definition) : Schema.JSON(definition);
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
