// Package torture runs sessions on a Kafka of three nodes while one node after
// another is killed and comes back and the network cuts, delays and repeats
// requests, and holds what the sessions were told against what strangers read in
// the end:
//
//   - the records of every transaction whose Commit returned nil are there,
//     each once and in order in its partition;
//   - of a transaction that an error called not committed there is nothing;
//   - of one whose outcome stayed unknown, which the report counts, there is
//     everything or nothing;
//   - a group's offset is that of the last transaction that carried one.
//
// Whatever a call leaves open is resolved as a program would: by the same call
// again, by Outcome, by Initialize, or by a new session.
package torture
