// Package examples holds programs that show the module at work. Each runs on a
// cluster inside its process, or with -brokers on a Kafka that exists; each
// proves its result and ends with an error if it is wrong.
//
//   - readprocesswrite: a consumer group, exactly once, with a failure and a killed worker
//   - committer: one process prepares transactions and is killed, another one commits them
//   - twophase: Kafka and a journal commit both or neither, whenever the process dies
//   - streamstask: a task with a state store, for which the session's state is the only flag
//   - sourcetask: a source whose offsets are written in the transaction of its data
package examples
