package transport

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Reasons that many requests share.
const (
	whyBusy     = "the last transaction of the id is still ending"
	whyTrouble  = "passing trouble of the broker"
	whyVersion  = "the broker does not know the version"
	whyStranger = "nothing is known about this code here"
)

// writes are the answers of a coordinator to a request that it appends to its
// log. It answers with these also when the append went through or still may:
// after a time-out, with too few replicas after the append, or when it lost
// leadership or its cache before it could answer.
func writes() []Row {
	return slices.Concat(
		open(ClassRetriable, "the coordinator reads its state; it may have lost it after the append", kerr.CoordinatorLoadInProgress),
		open(ClassRefresh, "there is no coordinator, or its append was not confirmed", kerr.CoordinatorNotAvailable),
		open(ClassRefresh, "the coordinator moved, maybe after the append", kerr.NotCoordinator, kerr.TransactionCoordinatorFenced),
		open(ClassRetriable, "the broker does not say how far it came", kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
	)
}

// reads are the answers of a coordinator to a question.
func reads() []Row {
	return slices.Concat(
		on(ClassRetriable, "the coordinator reads its state", kerr.CoordinatorLoadInProgress),
		on(ClassRefresh, "there is no coordinator now", kerr.CoordinatorNotAvailable),
		on(ClassRefresh, "the coordinator moved", kerr.NotCoordinator, kerr.TransactionCoordinatorFenced),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
	)
}

// fenced are the answers to an identity that is not the current one.
func fenced(reason string) []Row {
	return on(ClassFenced, reason, kerr.InvalidProducerEpoch, kerr.ProducerFenced)
}

func version() []Row { return on(ClassUnsupported, whyVersion, kerr.UnsupportedVersion) }

// register are the answers to what adds partitions or offsets to a transaction.
func register() []Row {
	return slices.Concat(
		writes(), version(),
		on(ClassRetriable, whyBusy, kerr.ConcurrentTransactions),
		fenced("another owner has the id, or the coordinator ended the transaction"),
		on(ClassFatal, "the coordinator has forgotten the producer id", kerr.InvalidProducerIDMapping),
		on(ClassDenied, "no WRITE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		on(ClassAbortable, "the transaction is not open any more", kerr.InvalidTxnState),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		on(ClassAbortable, "the broker has no record of the producer", kerr.UnknownProducerID),
		on(ClassAbortable, "no access to a topic", kerr.TopicAuthorizationFailed),
		on(ClassAbortable, "no READ on the group", kerr.GroupAuthorizationFailed),
		rest(ClassAbortable, "whatever it is, an abort is allowed"),
	)
}

// members are the answers to a group member that is not, or no longer, one.
func members() []Row {
	return on(ClassAbortable, "the group no longer takes this member's offsets",
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.FencedInstanceID,
		kerr.FencedMemberEpoch, kerr.StaleMemberEpoch, kerr.GroupIDNotFound)
}

// leaders are the answers of a node that does not lead the partition.
func leaders() []Row {
	return slices.Concat(
		on(ClassRefresh, "the partition has no leader now", kerr.LeaderNotAvailable),
		on(ClassRefresh, "the leader moved", kerr.NotLeaderForPartition),
		on(ClassRefresh, "the node does not have the partition", kerr.UnknownTopicOrPartition),
		on(ClassRefresh, "the topic was created anew, or its id is not known yet", kerr.UnknownTopicID, kerr.InconsistentTopicID),
	)
}

// leaderReads are the answers of a partition leader to a question.
func leaderReads() []Row {
	return slices.Concat(
		leaders(), version(),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassRetriable, "the disk of the leader has a fault", kerr.KafkaStorageError),
		on(ClassRetriable, "the leader is not ready", kerr.ReplicaNotAvailable, kerr.OffsetNotAvailable),
		on(ClassRefresh, "our leader epoch is old", kerr.FencedLeaderEpoch),
		on(ClassRetriable, "the node's leader epoch is old", kerr.UnknownLeaderEpoch),
		on(ClassDenied, "no access to the topic", kerr.TopicAuthorizationFailed),
	)
}

var tables = []table{
	rows(keyProduce,
		leaders(), version(),
		on(ClassRefresh, "no listener of the leader matches", kerr.ListenerNotFound),
		on(ClassNone, "the batch was written before", kerr.DuplicateSequenceNumber),
		on(ClassRetriable, "too few replicas, not written", kerr.NotEnoughReplicas),
		open(ClassRetriable, "too few replicas after the append", kerr.NotEnoughReplicasAfterAppend),
		open(ClassRetriable, "the append was not confirmed", kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassRetriable, "the disk of the leader has a fault", kerr.KafkaStorageError),
		on(ClassRetriable, "our leader epoch, or the node's, is old", kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch),
		on(ClassRetriable, whyBusy, kerr.ConcurrentTransactions),
		on(ClassRetriable, "the leader cannot register the partition at the coordinator now",
			kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator),
		on(ClassRetriable, "over quota", kerr.ThrottlingQuotaExceeded),
		on(ClassAbortable, "a batch before this one is missing", kerr.OutOfOrderSequenceNumber),
		on(ClassAbortable, "not the epoch of the last marker: recover and see", kerr.InvalidProducerEpoch),
		on(ClassAbortable, "the transaction is not open any more", kerr.InvalidTxnState),
		on(ClassAbortable, "the broker has no record of the producer", kerr.UnknownProducerID),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		on(ClassAbortable, "the batch is too large", kerr.MessageTooLarge, kerr.RecordListTooLarge),
		on(ClassAbortable, "the broker refuses the records",
			kerr.InvalidRecord, kerr.CorruptMessage, kerr.InvalidTimestamp, kerr.PolicyViolation,
			kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType, kerr.InvalidRequiredAcks),
		on(ClassAbortable, "no such topic can be", kerr.InvalidTopicException),
		on(ClassAbortable, "no access to the topic, or no WRITE on the transactional id",
			kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed),
		on(ClassFatal, "the coordinator has forgotten the producer id", kerr.InvalidProducerIDMapping),
		on(ClassFenced, "another owner has the id", kerr.ProducerFenced),
		open(ClassAbortable, "the broker does not say how far it came", kerr.UnknownServerError),
		restOpen(ClassAbortable, "whatever it is, an abort is allowed"),
	),
	rows(keyFetch,
		leaderReads(),
		on(ClassRetriable, "the fetch session is gone", kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError),
		on(ClassRetriable, "the batch was cut on its way", kerr.CorruptMessage),
		on(ClassUnknown, "the offset was deleted, or is not there yet", kerr.OffsetOutOfRange),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyListOffsets, leaderReads(), rest(ClassUnknown, whyStranger)),
	rows(keyMetadata,
		version(),
		on(ClassRetriable, "the topic is not there, or not yet", kerr.UnknownTopicOrPartition, kerr.UnknownTopicID),
		on(ClassRetriable, "the topic has no leaders yet", kerr.LeaderNotAvailable),
		on(ClassRetriable, "no listener of the leader matches", kerr.ListenerNotFound),
		on(ClassRetriable, "the replica is not ready; the leader counts", kerr.ReplicaNotAvailable),
		on(ClassRetriable, "the client goes back to its seeds", kerr.RebootstrapRequired),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassDenied, "no access to the topic", kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed),
		on(ClassFatal, "no such topic can be", kerr.InvalidTopicException),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyFindCoordinator,
		version(),
		on(ClassRetriable, "the coordinator has no leader yet, as after the first use of a cluster", kerr.CoordinatorNotAvailable),
		on(ClassRetriable, "the coordinator reads its state", kerr.CoordinatorLoadInProgress),
		on(ClassRetriable, "the broker does not know yet", kerr.NotCoordinator),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassDenied, "no DESCRIBE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		on(ClassDenied, "no DESCRIBE on the group", kerr.GroupAuthorizationFailed),
		on(ClassDenied, "no access to the cluster", kerr.ClusterAuthorizationFailed),
		on(ClassFatal, "no such id can be", kerr.InvalidRequest, kerr.InvalidGroupID),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyAPIVersions,
		version(),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassRetriable, "the node behind the address is another one", kerr.RebootstrapRequired),
		on(ClassDenied, "the broker refuses the credentials or the mechanism", kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState),
		on(ClassFatal, "the broker does not take the client's name", kerr.InvalidRequest),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyInitProducerID,
		writes(),
		on(ClassRetriable, "a transaction of the id is ending; a takeover always meets it", kerr.ConcurrentTransactions),
		fenced("the held producer id and epoch are not the current ones"),
		on(ClassFatal, "the coordinator has forgotten the held producer id", kerr.InvalidProducerIDMapping),
		on(ClassFatal, "the timeout is above the broker's transaction.max.timeout.ms", kerr.InvalidTransactionTimeout),
		on(ClassDenied, "no WRITE on the transactional id, or two-phase commit is not granted or not enabled", kerr.TransactionalIDAuthorizationFailed),
		on(ClassDenied, "no access to the cluster", kerr.ClusterAuthorizationFailed),
		on(ClassUnsupported, "the broker does not know the version, or does not keep prepared transactions", kerr.UnsupportedVersion),
		on(ClassFatal, "the broker does not take the request", kerr.InvalidRequest),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		restOpen(ClassUnknown, "the code does not say whether the epoch moved"),
	),
	rows(keyAddPartitionsToTxn,
		register(),
		on(ClassRetriable, "the coordinator does not know the topic yet; the caller sets a bound", kerr.UnknownTopicOrPartition),
		on(ClassAbortable, "another partition of the request was refused", kerr.OperationNotAttempted),
	),
	rows(keyAddOffsetsToTxn,
		register(),
		on(ClassAbortable, "no such group can be", kerr.InvalidGroupID),
	),
	rows(keyTxnOffsetCommit,
		register(), members(),
		on(ClassRetriable, "the group coordinator does not know the topic yet; the caller sets a bound", kerr.UnknownTopicOrPartition),
		on(ClassRefresh, "the topic was created anew, or its id is not known yet; the caller sets a bound", kerr.UnknownTopicID),
		on(ClassAbortable, "the offsets or their metadata are too large", kerr.OffsetMetadataTooLarge, kerr.InvalidCommitOffsetSize),
		on(ClassAbortable, "no such group can be", kerr.InvalidGroupID),
	),
	rows(keyEndTxn,
		writes(), version(),
		on(ClassRetriable, whyBusy, kerr.ConcurrentTransactions),
		on(ClassAbortable, "this request did not end it: not open, or ended the other way", kerr.InvalidTxnState),
		fenced("a newer epoch is known; whether this transaction ended first the code does not say"),
		on(ClassFatal, "the coordinator has forgotten the producer id", kerr.InvalidProducerIDMapping),
		on(ClassDenied, "no WRITE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		on(ClassFatal, "the broker does not take the request", kerr.InvalidRequest),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		on(ClassAbortable, "the broker has no record of the producer", kerr.UnknownProducerID),
		restOpen(ClassUnknown, "the code does not say whether the transaction ended"),
	),
	rows(keyTxnHeartbeat,
		reads(), version(),
		on(ClassRetriable, whyBusy, kerr.ConcurrentTransactions),
		fenced("another owner has the id, or the session timed out"),
		on(ClassFatal, "the coordinator has forgotten the producer id", kerr.InvalidProducerIDMapping),
		on(ClassDenied, "no WRITE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		on(ClassAbortable, "the transaction is not open any more", kerr.InvalidTxnState),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyAddShareAcksToTxn, register(), members()),
	rows(keyTxnShareAcknowledge,
		leaders(), members(), version(),
		open(ClassRetriable, "the broker does not say how far it came", kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassRetriable, whyBusy, kerr.ConcurrentTransactions),
		on(ClassRetriable, "the leader reads its state", kerr.CoordinatorLoadInProgress),
		on(ClassAbortable, "the leader could not register at the coordinator: nothing staged", kerr.CoordinatorNotAvailable, kerr.NotCoordinator),
		on(ClassAbortable, "the record is not held by this member, or not in a state to be acknowledged", kerr.InvalidRecordState),
		fenced("another owner has the id, or the coordinator ended the transaction"),
		on(ClassFatal, "the coordinator has forgotten the producer id", kerr.InvalidProducerIDMapping),
		on(ClassDenied, "no WRITE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		on(ClassAbortable, "the transaction is not open any more", kerr.InvalidTxnState),
		on(ClassAbortable, "the broker asks for an abort", kerr.TransactionAbortable),
		on(ClassAbortable, "no access to the group or a topic", kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed),
		rest(ClassAbortable, "whatever it is, an abort is allowed"),
	),
	rows(keyDescribeTransactions,
		reads(), version(),
		on(ClassUnknown, "the coordinator has forgotten the id: only markers may still tell", kerr.TransactionalIDNotFound),
		on(ClassDenied, "no DESCRIBE on the transactional id", kerr.TransactionalIDAuthorizationFailed),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyListTransactions,
		version(),
		on(ClassRetriable, "the broker has not read the states of all its ids", kerr.CoordinatorLoadInProgress),
		// The request goes to every broker: there is none to look up.
		on(ClassRetriable, "the broker's coordinator is not running now", kerr.CoordinatorNotAvailable, kerr.NotCoordinator),
		on(ClassRetriable, whyTrouble, kerr.UnknownServerError, kerr.RequestTimedOut, kerr.NetworkException),
		on(ClassDenied, "no access to the cluster", kerr.ClusterAuthorizationFailed),
		rest(ClassUnknown, whyStranger),
	),
	rows(keyDescribeProducers, leaderReads(), rest(ClassUnknown, whyStranger)),
}
