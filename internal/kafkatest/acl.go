package kafkatest

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
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
	// The broker sees the salted password only (RFC 5802).
	salt := randomBytes(16)
	const iterations = 4096
	salted, err := pbkdf2.Key(sha256.New, c.sec.password(name), salt, iterations, sha256.Size)
	if err != nil {
		return err
	}
	err = c.anyNode(ctx, func(ctx context.Context, p peer) error {
		req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		up.Name, up.Mechanism, up.Iterations, up.Salt, up.SaltedPassword = name, 1, iterations, salt, salted
		req.Upsertions = append(req.Upsertions, up)
		resp, err := req.RequestWith(ctx, p)
		if err != nil {
			return err
		}
		got, err := sole(resp.Results)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(got.ErrorCode)
	})
	if err != nil {
		return fmt.Errorf("kafkatest: add user %s: %w", name, err)
	}
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d lets in %s", p.id, name), func(ctx context.Context) error {
			user, err := c.dial(p.id, name) // each attempt on a connection of its own
			if err != nil {
				return err
			}
			defer user.cl.Close()
			_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, user)
			return err
		})
	})
}

// Allow gives user a right and returns when every reachable node knows. The name
// of the resource is literal, "*" is every name; the name of the resource cluster
// is "kafka-cluster". It works on shared clusters.
func (c *Cluster) Allow(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) error {
	return c.changeACL(ctx, user, resource, name, op, true, func(ctx context.Context, p peer) error {
		req := kmsg.NewPtrCreateACLsRequest()
		acl := kmsg.NewCreateACLsRequestCreation()
		acl.ResourceType, acl.ResourceName, acl.ResourcePatternType = resource, name, kmsg.ACLResourcePatternTypeLiteral
		acl.Principal, acl.Host, acl.Operation, acl.PermissionType = "User:"+user, "*", op, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, acl)
		resp, err := req.RequestWith(ctx, p)
		if err != nil {
			return err
		}
		got, err := sole(resp.Results)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(got.ErrorCode)
	})
}

// Revoke takes back what Allow with the same arguments gave. Taking back what was
// not given is no error.
func (c *Cluster) Revoke(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation) error {
	return c.changeACL(ctx, user, resource, name, op, false, func(ctx context.Context, p peer) error {
		req := kmsg.NewPtrDeleteACLsRequest()
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = resource, kmsg.StringPtr(name), kmsg.ACLResourcePatternTypeLiteral
		f.Principal, f.Host, f.Operation, f.PermissionType = kmsg.StringPtr("User:"+user), kmsg.StringPtr("*"), op, kmsg.ACLPermissionTypeAllow
		req.Filters = append(req.Filters, f)
		resp, err := req.RequestWith(ctx, p)
		if err != nil {
			return err
		}
		got, err := sole(resp.Results)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(got.ErrorCode)
	})
}

// changeACL makes a change and waits until every reachable node has it.
func (c *Cluster) changeACL(ctx context.Context, user string, resource kmsg.ACLResourceType, name string, op kmsg.ACLOperation, want bool, change func(context.Context, peer) error) error {
	if c.sec == nil {
		return errNotSecure
	}
	if err := c.anyNode(ctx, change); err != nil {
		return fmt.Errorf("kafkatest: ACL of %s on %s %s: %w", user, resource, name, err)
	}
	return c.eachNode(ctx, func(ctx context.Context, p peer) error {
		return poll(ctx, fmt.Sprintf("node %d knows the ACL of %s", p.id, user), func(ctx context.Context) error {
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
