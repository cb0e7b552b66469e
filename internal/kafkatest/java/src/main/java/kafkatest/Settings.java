package kafkatest;

import java.io.IOException;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The settings that the programs share. */
final class Settings {
  private Settings() {}

  /** What any client needs; the system property kafkatest.client names a file with more of it. */
  static Properties client(String bootstrap) throws IOException {
    Properties p = new Properties();
    String file = System.getProperty("kafkatest.client");
    if (file != null) {
      try (Reader r = Files.newBufferedReader(Path.of(file))) {
        p.load(r);
      }
    }
    p.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    return p;
  }

  /** What a producer needs. */
  static Properties producer(String bootstrap) throws IOException {
    Properties p = client(bootstrap);
    p.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
    p.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class.getName());
    return p;
  }
}
