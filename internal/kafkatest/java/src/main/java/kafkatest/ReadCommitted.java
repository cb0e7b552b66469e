package kafkatest;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * ReadCommitted BOOTSTRAP TOPIC prints the values that a read_committed consumer sees, one a line,
 * partition by partition, up to the last stable offsets of the moment it asked.
 */
public final class ReadCommitted {
  private ReadCommitted() {}

  public static void main(String[] args) throws Exception {
    Properties p = Settings.client(args[0]);
    p.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
    p.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
    try (KafkaConsumer<byte[], byte[]> consumer =
        new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
      List<TopicPartition> partitions =
          consumer.partitionsFor(args[1]).stream()
              .map(i -> new TopicPartition(i.topic(), i.partition()))
              .collect(Collectors.toList());
      consumer.assign(partitions);
      consumer.seekToBeginning(partitions);
      Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
      Map<Integer, StringBuilder> out = new TreeMap<>();
      // The position moves past what is not for a consumer: aborted records and markers.
      while (ends.entrySet().stream().anyMatch(e -> consumer.position(e.getKey()) < e.getValue())) {
        for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(100))) {
          if (r.offset() < ends.get(new TopicPartition(r.topic(), r.partition()))) {
            String value = r.value() == null ? "null" : new String(r.value(), StandardCharsets.UTF_8);
            out.computeIfAbsent(r.partition(), k -> new StringBuilder()).append(value).append('\n');
          }
        }
      }
      out.values().forEach(System.out::print);
      System.out.flush();
    }
  }
}
