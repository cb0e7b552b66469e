package kafkatest

import (
	"fmt"
	"strings"
)

// properties is the server.properties of a node.
type properties []string

func (p *properties) set(key string, value any) {
	*p = append(*p, fmt.Sprintf("%s=%v", key, value))
}

func (p properties) String() string { return strings.Join(p, "\n") + "\n" }

// serverProperties writes the settings of node id; ports are those of all nodes.
func serverProperties(spec Spec, id int, ports []nodePorts, dataDir string, sec *security) string {
	var p properties
	var voters []string
	for i, np := range ports {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, np.controller))
	}
	p.set("process.roles", "broker,controller")
	p.set("node.id", id)
	p.set("controller.quorum.voters", strings.Join(voters, ","))
	p.set("log.dirs", dataDir)
	p.listeners(ports[id-1], sec)

	// Internal topics: few partitions, as many replicas as there are nodes.
	rf, minISR := min(3, spec.Nodes), (spec.Nodes+1)/2
	p.set("default.replication.factor", rf)
	p.set("min.insync.replicas", minISR)
	p.set("offsets.topic.replication.factor", rf)
	p.set("offsets.topic.num.partitions", 8)
	p.set("transaction.state.log.replication.factor", rf)
	p.set("transaction.state.log.min.isr", minISR)
	p.set("transaction.state.log.num.partitions", transactionPartitions)
	if spec.atLeast(4, 1) {
		p.set("share.coordinator.state.topic.replication.factor", rf)
		p.set("share.coordinator.state.topic.min.isr", minISR)
		p.set("share.coordinator.state.topic.num.partitions", 4)
		// Lower bounds only: what a group gets unless it asks stays as it is.
		p.set("group.share.min.record.lock.duration.ms", 1000)
		p.set("group.share.min.heartbeat.interval.ms", 500)
		p.set("group.share.min.session.timeout.ms", 2000)
	}
	p.set("group.consumer.min.heartbeat.interval.ms", 500)
	p.set("group.consumer.min.session.timeout.ms", 2000)
	p.set("group.min.session.timeout.ms", 1000)
	p.set("group.initial.rebalance.delay.ms", 0)
	p.set("transaction.abort.timed.out.transaction.cleanup.interval.ms", 1000)

	// A restarted node is refused until the session of its former life is over.
	p.set("broker.session.timeout.ms", 3000)
	p.set("broker.heartbeat.interval.ms", 500)
	p.set("unclean.leader.election.enable", false)
	p.set("auto.create.topics.enable", false)
	p.set("auto.leader.rebalance.enable", false) // MoveLeader decides who leads
	p.set("log.cleaner.dedupe.buffer.size", 4<<20)
	if spec.UnstableAPIs {
		p.set("unstable.api.versions.enable", true)
	}
	if spec.TwoPhaseCommit {
		p.set("transaction.two.phase.commit.enable", true)
	}
	if spec.Overrides != "" {
		p = append(p, spec.Overrides)
	}
	return p.String()
}

// transactionPartitions is how many partitions __transaction_state has.
const transactionPartitions = 8

// listeners: CLIENT is where clients go, NODES where brokers meet, CONTROLLER
// where the quorum does.
func (p *properties) listeners(np nodePorts, sec *security) {
	p.set("listeners", fmt.Sprintf("CLIENT://127.0.0.1:%d,NODES://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", np.client, np.nodes, np.controller))
	p.set("advertised.listeners", fmt.Sprintf("CLIENT://127.0.0.1:%d,NODES://127.0.0.1:%d", np.client, np.nodes))
	p.set("controller.listener.names", "CONTROLLER")
	p.set("inter.broker.listener.name", "NODES")
	if sec == nil {
		p.set("listener.security.protocol.map", "CLIENT:PLAINTEXT,NODES:PLAINTEXT,CONTROLLER:PLAINTEXT")
		return
	}
	sec.set(p)
}

// log4jProperties is what Kafka 3 logs by; Kafka 4 takes flags.
const log4jProperties = `log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1} - %m%n
`

var simpleLogger = []string{
	"-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
	"-Dorg.slf4j.simpleLogger.showDateTime=true",
	"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	"-Dorg.slf4j.simpleLogger.showShortLogName=true",
	"-Dorg.slf4j.simpleLogger.showThreadName=false",
	"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
}
