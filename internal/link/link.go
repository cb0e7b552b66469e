package link

import (
	"context"

	"github.com/ktxn/ktxn/internal/transport"
)

var (
	// Transport returns the machinery of a *netclient.Client. Set by netclient.
	Transport func(netclient any) *transport.Client

	// Attach returns the one value that is attached to a *txnsession.Session;
	// make makes it at the first call. Set by txnsession.
	Attach func(session any, make func() any) any

	// Enlist joins a txnsession.Participant to the open transaction of a
	// *txnsession.Session in PhaseSend and returns its *txnsession.Txn. It is
	// as Session.Enlist, but the context of a PhaseWork Flush passes the gate
	// that is closed to other callers by then. Set by txnsession.
	Enlist func(ctx context.Context, session, participant any) (txn any, err error)
)
