package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var errNotSecure = errors.New("kafkatest: the cluster has no users: its Spec is not Secure")

// AddUser makes a user without any rights, whom [Cluster.UserOpts] lets in, and
// returns when every reachable node knows the user. It works on shared clusters:
// take a name of your own ([UniqueID]).
func (c *Cluster) AddUser(ctx context.Context, name string) error {
	if c.sec == nil {
		return errNotSecure
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	altered, err := kadm.NewClient(cl).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{
		User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: c.sec.password(name),
	}})
	if err == nil {
		err = altered.Error()
	}
	if err != nil {
		return fmt.Errorf("kafkatest: add user %s: %w", name, err)
	}
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d lets in %s", p.id, name), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			// Each attempt needs a connection of its own.
			user, err := kgo.NewClient(append(c.UserOpts(name), kgo.SeedBrokers(c.seeds[p.id-1]),
				kgo.DisableClientMetrics(), kgo.RequestRetries(0))...)
			if err != nil {
				return err
			}
			defer user.Close()
			_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, user.SeedBrokers()[0])
			return err
		})
	})
}

// Allow gives user a right and returns when every reachable node knows. The name
// of the resource is literal, "*" is every name; the name of the resource cluster
// is "kafka-cluster". It works on shared clusters.
func (c *Cluster) Allow(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) error {
	return c.changeACL(ctx, user, resource, name, op, true, func(ctx context.Context, cl *kgo.Client) error {
		req := kmsg.NewPtrCreateACLsRequest()
		acl := kmsg.NewCreateACLsRequestCreation()
		acl.ResourceType, acl.ResourceName, acl.ResourcePatternType = resource, name, kmsg.ACLResourcePatternTypeLiteral
		acl.Principal, acl.Host, acl.Operation, acl.PermissionType = "User:"+user, "*", op, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, acl)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Results[0].ErrorCode)
	})
}

// Revoke takes back what Allow with the same arguments gave. Taking back what was
// not given is no error.
func (c *Cluster) Revoke(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) error {
	return c.changeACL(ctx, user, resource, name, op, false, func(ctx context.Context, cl *kgo.Client) error {
		req := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = resource, kmsg.StringPtr(name), kmsg.ACLResourcePatternTypeLiteral
		f.Principal, f.Host, f.Operation, f.PermissionType = kmsg.StringPtr("User:"+user), kmsg.StringPtr("*"), op, kmsg.ACLPermissionTypeAllow
		req.Filters = append(req.Filters, f)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Results[0].ErrorCode)
	})
}

// changeACL makes a change and waits until every reachable node has it.
func (c *Cluster) changeACL(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation, want bool, change func(context.Context, *kgo.Client) error) error {
	if c.sec == nil {
		return errNotSecure
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := change(ctx, cl); err != nil {
		return fmt.Errorf("kafkatest: ACL of %s on %s %s: %w", user, resource, name, err)
	}
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d knows the ACL of %s", p.id, user), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			req := kmsg.NewPtrDescribeACLsRequest()
			req.ResourceType, req.ResourceName, req.ResourcePatternType = resource, kmsg.StringPtr(name), kmsg.ACLResourcePatternTypeLiteral
			req.Principal, req.Operation, req.PermissionType = kmsg.StringPtr("User:"+user), op, kmsg.ACLPermissionTypeAllow
			resp, err := req.RequestWith(ctx, p)
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
				return err
			}
			if has := len(resp.Resources) > 0; has != want {
				return fmt.Errorf("it is there: %t", has)
			}
			return nil
		})
	})
}
