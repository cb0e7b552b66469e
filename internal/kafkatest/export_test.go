package kafkatest

// What the tests of this package look at beside its surface.
var (
	Lease       = lease
	Cached      = cached
	PartitionOf = partitionOf
	NewDataDir  = newDataDir
)

// Pid is the process of a node.
func (c *Cluster) Pid(id int) int { return c.nodes[id-1].process.Pid }

// Dir is where the nodes keep their files.
func (c *Cluster) Dir() string { return c.dir }
