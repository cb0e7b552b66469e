package transport

import "github.com/twmb/franz-go/pkg/kmsg"

// Keys of the requests that the retry table has rows for, or that a lane
// treats apart from others. The draft keys are those of the embedded test
// cluster; Client.tableKey maps a user's to them.
const (
	keyProduce              int16 = 0
	keyFetch                int16 = 1
	keyListOffsets          int16 = 2
	keyMetadata             int16 = 3
	keyFindCoordinator      int16 = 10
	keyJoinGroup            int16 = 11
	keySyncGroup            int16 = 14
	keyAPIVersions          int16 = 18
	keyInitProducerID       int16 = 22
	keyAddPartitionsToTxn   int16 = 24
	keyAddOffsetsToTxn      int16 = 25
	keyEndTxn               int16 = 26
	keyTxnOffsetCommit      int16 = 28
	keyDescribeProducers    int16 = 61
	keyDescribeTransactions int16 = 65
	keyListTransactions     int16 = 66
	keyShareGroupHeartbeat  int16 = 76
	keyShareFetch           int16 = 78
	keyShareAcknowledge     int16 = 79

	keyAddShareAcksToTxn   int16 = 1083
	keyTxnShareAcknowledge int16 = 1093
	keyTxnHeartbeat        int16 = 1095
)

// Error codes that the code, and not only the table, tells apart.
const (
	codeCoordinatorNotAvailable int16 = 15
	codeNotCoordinator          int16 = 16
	codeConcurrentTransactions  int16 = 51
	codeTxnCoordinatorFenced    int16 = 52
)

// KeyName returns the name of a request, those of this module included.
func KeyName(key int16) string {
	for name, draft := range defaultDraftKeys {
		if draft == key {
			return name
		}
	}
	return kmsg.NameForKey(key)
}
