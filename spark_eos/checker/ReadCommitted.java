import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the records of partitions, as Kafka's own client gets them, byte for byte.
 *
 * What to read comes on stdin, records go to stdout; java_reader.py, which starts this, has the format.
 */
class ReadCommitted {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PAUSE_MS = 200;
    private static final int END = -1;

    private final DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
    private final List<TopicPartition> places = new ArrayList<>();
    private final Map<TopicPartition, Integer> numbers = new HashMap<>();
    private final List<Long> starts = new ArrayList<>();
    private final List<Long> ends = new ArrayList<>();

    public static void main(String[] none) throws IOException {
        int code = 0;
        try {
            new ReadCommitted().run(new DataInputStream(new BufferedInputStream(System.in)));
        } catch (Throwable error) { // out of memory, too: so it ends where TLS answers a client without
            System.err.println(told(error));
            code = 1;
        }
        Runtime.getRuntime().halt(code); // the client's threads need not end in order
    }

    private void run(DataInputStream in) throws Exception {
        long patienceMs = in.readLong();
        Properties settings = new Properties();
        for (int left = in.readInt(); left > 0; left--) {
            settings.setProperty(text(in), text(in));
        }
        for (int left = in.readInt(); left > 0; left--) {
            TopicPartition place = new TopicPartition(text(in), in.readInt());
            numbers.put(place, places.size());
            places.add(place);
            starts.add(in.readLong());
            ends.add(in.readLong());
        }
        ByteArrayDeserializer asBytes = new ByteArrayDeserializer();
        read(new KafkaConsumer<>(settings, asBytes, asBytes), patienceMs);
        out.writeInt(END);
        out.flush();
    }

    private void read(KafkaConsumer<byte[], byte[]> consumer, long patienceMs) throws Exception {
        consumer.assign(places);
        for (int i = 0; i < places.size(); i++) {
            consumer.seek(places.get(i), starts.get(i));
        }
        long reached = -1;
        long quietSince = System.nanoTime();
        while (behind(consumer)) {
            poll(consumer);
            long now = places.stream().mapToLong(consumer::position).sum();
            if (now != reached) {
                reached = now;
                quietSince = System.nanoTime();
            } else if (System.nanoTime() - quietSince > patienceMs * 1_000_000) {
                throw new IOException("nothing came for " + patienceMs / 1000.0 + " s");
            }
        }
    }

    private boolean behind(KafkaConsumer<byte[], byte[]> consumer) {
        boolean behind = false;
        for (int i = 0; i < places.size(); i++) {
            behind |= consumer.position(places.get(i)) < ends.get(i);
        }
        return behind;
    }

    private void poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            for (ConsumerRecord<byte[], byte[]> found : consumer.poll(POLL)) {
                int number = numbers.get(new TopicPartition(found.topic(), found.partition()));
                if (found.offset() < ends.get(number)) {
                    print(number, found);
                }
            }
        } catch (InvalidOffsetException error) { // a new leader does not know for a moment what the one before had
            Thread.sleep(PAUSE_MS);
        }
    }

    private void print(int number, ConsumerRecord<byte[], byte[]> found) throws IOException {
        out.writeInt(number);
        out.writeLong(found.offset());
        out.writeLong(found.timestamp());
        bytes(found.key());
        bytes(found.value());
        Header[] headers = found.headers().toArray();
        out.writeInt(headers.length);
        for (Header header : headers) {
            bytes(header.key().getBytes(StandardCharsets.UTF_8));
            bytes(header.value());
        }
    }

    private void bytes(byte[] content) throws IOException {
        out.writeInt(content == null ? -1 : content.length);
        if (content != null) {
            out.write(content);
        }
    }

    /** One line: what happened, and what it was caused by. */
    private static String told(Throwable error) {
        StringJoiner told = new StringJoiner(": ");
        for (Throwable each = error; each != null; each = each.getCause()) {
            told.add(each.getMessage() == null ? each.toString() : each.getMessage().replace('\n', ' '));
        }
        return told.toString();
    }

    private static String text(DataInputStream in) throws IOException {
        return new String(in.readNBytes(in.readInt()), StandardCharsets.UTF_8);
    }
}
