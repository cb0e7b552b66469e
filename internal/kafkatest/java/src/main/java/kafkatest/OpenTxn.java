package kafkatest;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * OpenTxn BOOTSTRAP ID TOPIC N leaves a transaction open: N records, flushed, nothing ended. It
 * prints "ID PRODUCER_ID EPOCH", which is all that a committer elsewhere needs.
 */
public final class OpenTxn {
  private OpenTxn() {}

  public static void main(String[] args) throws Exception {
    Properties p = Settings.producer(args[0]);
    p.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, args[1]);
    KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p);
    try {
      producer.initTransactions();
      producer.beginTransaction();
      int n = Integer.parseInt(args[3]);
      for (int i = 0; i < n; i++) {
        byte[] value = ("java-" + i).getBytes(StandardCharsets.UTF_8);
        producer.send(new ProducerRecord<>(args[2], value));
      }
      producer.flush();
      Object identity = field(field(producer, "transactionManager"), "producerIdAndEpoch");
      System.out.println(args[1] + " " + field(identity, "producerId") + " " + field(identity, "epoch"));
      System.out.flush();
    } catch (Throwable e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    // Without the shutdown that would abort the transaction.
    Runtime.getRuntime().halt(0);
  }

  private static Object field(Object of, String name) throws ReflectiveOperationException {
    Field f = of.getClass().getDeclaredField(name);
    f.setAccessible(true);
    return f.get(of);
  }
}
