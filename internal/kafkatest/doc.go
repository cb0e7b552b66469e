// Package kafkatest brings a real Apache Kafka to the tests of the other
// packages: the broker's jars come by Maven, once per version, into a cache;
// the nodes run as child processes of the test binary, or of a server that
// several test binaries share.
//
// # Which cluster a test takes
//
// [Shared] hands out one cluster per [Spec] and process; when the environment
// variable KTXN_KAFKATEST names a running server (the command
// internal/kafkatest/cmd/kafkatest starts one), the cluster is shared by every
// process that asks. A test on a shared cluster uses topics and transactional
// ids of its own ([Topic], [UniqueID]) and must not disturb others: Kill, Stop,
// Continue and Restart answer [ErrShared] there. [Own] starts a private cluster
// for a test that kills nodes, and ends it with the test.
//
// A package whose tests use Shared ends its clusters from TestMain:
//
//	func TestMain(m *testing.M) {
//		goleak.VerifyTestMain(kafkatest.Main(m))
//	}
//
// Between the start and the end of a cluster each node keeps one goroutine: a
// test that looks for leaks by itself takes goleak.IgnoreCurrent after Shared.
//
// # What is needed
//
// Java 17 or newer (java) and Maven (mvn) on the PATH, and for the first run of
// each version a way to Maven's repository. Without Java or Maven, Start answers
// a [*MissingError], and Shared and Own skip the test. The cache lies in the
// user's cache directory under ktxn; KTXN_KAFKA_CACHE moves it. Deleting it is
// safe while no test runs.
//
// # What is left behind
//
// Nothing but the cache. On Linux the nodes die with the process that started
// them, however it ends; data directories of processes that were killed are
// removed by the next Start.
package kafkatest
