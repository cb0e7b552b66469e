// Package proof has the tests that run the whole of the module, from the
// session down to the socket, against a real Apache Kafka, with other people's
// clients as judges: kgo, Java's producer and consumers, Flink's committer.
//
// What the packages promise one by one is tested there; here is what only shows
// when they work together, and on a broker that nobody of us wrote. Where the
// embedded cluster can take part, it does.
//
// The long form of the tests, under nodes that die, is a program:
//
//	go run ./internal/proof/cmd/torture -duration 3m
package proof
