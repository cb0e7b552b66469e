package transport

import "context"

// NodeVersions is what one broker said about itself. It never changes.
type NodeVersions struct{}

// MaxVersion returns the highest version of key that broker and user allow,
// -1 if there is none.
func (v *NodeVersions) MaxVersion(key int16) int16 { return -1 }

// Feature returns the finalized level of a feature, 0 if absent.
func (v *NodeVersions) Feature(name string) int16 { return 0 }

// NodeVersions returns the versions and finalized features of a broker.
func (c *Client) NodeVersions(ctx context.Context, node int32, fresh bool) (*NodeVersions, error) {
	return nil, ctx.Err()
}

// TransactionVersion returns the finalized transaction.version as the
// coordinator of id ("": any broker) knows it.
func (c *Client) TransactionVersion(ctx context.Context, id string, fresh bool) (int16, error) {
	return 0, ctx.Err()
}

// Supports reports whether every broker of the cluster shows the capability.
func (c *Client) Supports(ctx context.Context, capability string) (bool, error) {
	return false, ctx.Err()
}

// DraftKey returns the key of a draft request, -1 if it has none.
func (c *Client) DraftKey(request string) int16 { return -1 }

// Brokers returns the node ids of the cluster.
func (c *Client) Brokers(ctx context.Context) ([]int32, error) { return nil, ctx.Err() }

// Coordinators looks up the transaction coordinators of ids.
func (c *Client) Coordinators(ctx context.Context, ids []string) (map[string]int32, error) {
	return nil, ctx.Err()
}
