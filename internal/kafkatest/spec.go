package kafkatest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Default asks for whatever the broker does by itself in [Spec.TransactionVersion]
// and [Spec.ShareVersion].
const Default = -1

// Spec says which cluster a test needs. It is comparable: equal specs share a
// cluster in [Shared]. Start from one of the functions below ([Latest],
// [OldRules], ...) rather than from the zero value, whose TransactionVersion 0
// means old rules, and prefer a spec that other tests use too.
type Spec struct {
	// Version is the release of Apache Kafka, 3.9.0 or newer ("4.4.0").
	Version string
	// Nodes is 1 or 3. Each node is broker and controller. Node ids start at 1.
	Nodes int
	// TransactionVersion is the finalized transaction.version: 0 (old rules), 1,
	// 2, or Default. Brokers before 4.0 do not have the feature: 0 and Default
	// mean the same there.
	TransactionVersion int
	// ShareVersion is the finalized share.version: 0, 1, 2, or Default. Kafka 4.1
	// serves share groups only when it is 1.
	ShareVersion int
	// UnstableAPIs makes the broker expose API versions that are not settled
	// (unstable.api.versions.enable).
	UnstableAPIs bool
	// TwoPhaseCommit lets producers ask for transactions without a timeout
	// (transaction.two.phase.commit.enable). The request that asks for it needs
	// UnstableAPIs too.
	TwoPhaseCommit bool
	// Secure makes clients use SASL_SSL with SCRAM-SHA-256, and gives nobody but
	// the super user any right (see [Cluster.AddUser] and [Cluster.Allow]).
	Secure bool
	// JVM replaces the flags of each node's Java, heap and garbage collector
	// included. Empty means a small heap and the flags that start fastest, which
	// are not those that run fastest: set it for a measurement.
	JVM string
	// Overrides are lines added to each node's server.properties, which win over
	// the lines that are there.
	Overrides string
}

// Latest is one node of the newest release these tests know, as it comes.
func Latest() Spec {
	return Spec{Version: "4.4.0", Nodes: 1, TransactionVersion: Default, ShareVersion: Default}
}

// OldRules is Latest with transaction.version 0.
func OldRules() Spec {
	s := Latest()
	s.TransactionVersion = 0
	return s
}

// ThreeNodes is Latest with three nodes.
func ThreeNodes() Spec {
	s := Latest()
	s.Nodes = 3
	return s
}

// Secured is Latest with Secure.
func Secured() Spec {
	s := Latest()
	s.Secure = true
	return s
}

// Prepared is Latest with UnstableAPIs and TwoPhaseCommit.
func Prepared() Spec {
	s := Latest()
	s.UnstableAPIs, s.TwoPhaseCommit = true, true
	return s
}

// Kafka41 is one node of 4.1, the first release with share groups, switched on.
func Kafka41() Spec {
	s := Latest()
	s.Version, s.ShareVersion = "4.1.1", 1
	return s
}

// Kafka39 is one node of 3.9, the last release without transaction.version.
func Kafka39() Spec {
	s := Latest()
	s.Version = "3.9.1"
	return s
}

var versionPattern = regexp.MustCompile(`^(\d+)\.(\d+)\.\d+$`)

// check fills what may be left out and refuses what no cluster can be.
func (s Spec) check() (Spec, error) {
	if s.Version == "" {
		s.Version = Latest().Version
	}
	if s.Nodes == 0 {
		s.Nodes = 1
	}
	switch {
	case !versionPattern.MatchString(s.Version):
		return s, fmt.Errorf("kafkatest: version %q is not of the form 4.4.0", s.Version)
	case !s.atLeast(3, 9):
		return s, fmt.Errorf("kafkatest: version %s is older than 3.9.0", s.Version)
	case s.Nodes != 1 && s.Nodes != 3:
		return s, fmt.Errorf("kafkatest: %d nodes, want 1 or 3", s.Nodes)
	case s.TransactionVersion > 0 && !s.atLeast(4, 0):
		return s, fmt.Errorf("kafkatest: %s has no transaction.version", s.Version)
	case s.ShareVersion > 0 && !s.atLeast(4, 1):
		return s, fmt.Errorf("kafkatest: %s has no share.version", s.Version)
	}
	s.TransactionVersion = max(s.TransactionVersion, Default)
	s.ShareVersion = max(s.ShareVersion, Default)
	return s, nil
}

// String names the cluster in messages: "kafka 4.4.0 x3 transaction.version=0".
func (s Spec) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka %s x%d", s.Version, s.Nodes)
	for _, f := range s.features() {
		b.WriteString(" " + f)
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"unstable", s.UnstableAPIs}, {"2pc", s.TwoPhaseCommit}, {"secure", s.Secure}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	if s.JVM != "" {
		fmt.Fprintf(&b, " [%s]", s.JVM)
	}
	if s.Overrides != "" {
		fmt.Fprintf(&b, " %q", s.Overrides)
	}
	return b.String()
}

func (s Spec) atLeast(major, minor int) bool {
	m := versionPattern.FindStringSubmatch(s.Version)
	if m == nil {
		return false
	}
	a, _ := strconv.Atoi(m[1])
	b, _ := strconv.Atoi(m[2])
	return a > major || a == major && b >= minor
}

// features lists what is finalized when the data directories are formatted.
func (s Spec) features() []string {
	var fs []string
	if s.TransactionVersion != Default && s.atLeast(4, 0) {
		fs = append(fs, "transaction.version="+strconv.Itoa(s.TransactionVersion))
	}
	if s.ShareVersion != Default && s.atLeast(4, 1) {
		fs = append(fs, "share.version="+strconv.Itoa(s.ShareVersion))
	}
	return fs
}

// heap is what one node gets, in megabytes.
func (s Spec) heap() int {
	if s.Nodes == 3 {
		return 512
	}
	return 1024
}
