package kafkatest;

import org.apache.flink.connector.kafka.sink.internal.FlinkKafkaInternalProducer;

/**
 * FlinkCommit BOOTSTRAP ID PRODUCER_ID EPOCH commits a transaction that another process left open,
 * as Flink's committer does.
 */
public final class FlinkCommit {
  private FlinkCommit() {}

  public static void main(String[] args) throws Exception {
    try (FlinkKafkaInternalProducer<byte[], byte[]> producer =
        new FlinkKafkaInternalProducer<>(Settings.producer(args[0]), args[1])) {
      producer.resumeTransaction(Long.parseLong(args[2]), Short.parseShort(args[3]));
      producer.commitTransaction();
    }
  }
}
