package faultnet

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrNoBody is returned by Decode and DecodeAnswer when the log did not keep
// the body: it was over the limit, of a data request (see WithDataBodies), or
// has not arrived.
var ErrNoBody = errors.New("faultnet: body not kept")

// Request is a request as the client wrote it, and what became of it. It is a
// snapshot: a later Log tells what happened since.
type Request struct {
	// Seq numbers the requests of a Net from 1, in the order of their writing.
	Seq uint64
	// Conn numbers the connections of a Net from 1.
	Conn uint64
	// Addr is the address as the client dialled it.
	Addr string
	// Node is the broker's node id if a Metadata answer had named the address
	// by then, else Any (-1).
	Node int32

	Key           int16
	Version       int16
	CorrelationID int32
	// ClientID is empty for a null client id as well.
	ClientID string
	// Size is the frame's length in bytes, without the size field.
	Size int
	// At is when the request's header had been written.
	At time.Time

	// Action is what a fault did to the request, 0 if none met it.
	Action Action
	// Delivered: all of the request was handed to the broker's connection.
	Delivered bool
	// Served: the broker's answer came back, passed on to the client or not.
	Served bool
	// Answered: the client was given an answer, the broker's or another.
	Answered   bool
	AnsweredAt time.Time

	// Body is the encoded request without its header, nil if not kept. It is
	// shared: do not change it.
	Body []byte
	// Answer is the encoded answer that the client was given, without its
	// header, nil if not kept. It is shared: do not change it.
	Answer []byte

	make func() kmsg.Request
}

// Decode returns the request's body decoded. A key that kmsg does not know must
// have been registered with RegisterRequest.
func (r Request) Decode() (kmsg.Request, error) {
	req, err := r.empty()
	if err != nil {
		return nil, err
	}
	if r.Body == nil {
		return nil, ErrNoBody
	}
	if err := req.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("faultnet: decode %s v%d: %w", kmsg.NameForKey(r.Key), r.Version, err)
	}
	return req, nil
}

// DecodeAnswer returns the answer that the client was given, decoded.
func (r Request) DecodeAnswer() (kmsg.Response, error) {
	req, err := r.empty()
	if err != nil {
		return nil, err
	}
	if r.Answer == nil {
		return nil, ErrNoBody
	}
	return decodeResponse(req, r.Answer)
}

// decodeResponse reads the answer to req. A broker answers an ApiVersions
// version that it does not know with error 35 in version 0.
func decodeResponse(req kmsg.Request, body []byte) (kmsg.Response, error) {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if _, ok := resp.(*kmsg.ApiVersionsResponse); ok && len(body) > 1 && body[0] == 0 && body[1] == unsupportedVersion {
		resp.SetVersion(0)
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("faultnet: decode answer to %s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp, nil
}

// empty returns a request of the right kind and version without content.
func (r Request) empty() (kmsg.Request, error) {
	var req kmsg.Request
	if r.make != nil {
		req = r.make()
	} else {
		req = kmsg.RequestForKey(r.Key)
	}
	if req == nil {
		return nil, fmt.Errorf("faultnet: unknown API key %d", r.Key)
	}
	req.SetVersion(r.Version)
	return req, nil
}

// flexible tells whether the request's header ends in a tag section. A key that
// nobody knows is taken for a new one: all of those are flexible.
func (r Request) flexible() bool {
	req, err := r.empty()
	return err != nil || req.IsFlexible()
}

// flexibleAnswer tells the same of the answer's header.
func (r Request) flexibleAnswer() bool {
	return r.Key != apiVersionsKey && r.flexible() // readable before versions are known
}

// Keys that the Net itself deals with.
const (
	produceKey          int16 = 0
	fetchKey            int16 = 1
	metadataKey         int16 = 3
	saslHandshakeKey    int16 = 17
	apiVersionsKey      int16 = 18
	shareFetchKey       int16 = 78
	shareAcknowledgeKey int16 = 79
)

// stripTags returns b after the tag section at its beginning, or nil if there is
// none.
func stripTags(b []byte) []byte {
	reader := kbin.Reader{Src: b}
	kmsg.SkipTags(&reader)
	if reader.Complete() != nil {
		return nil
	}
	return reader.Src
}

// RegisterRequest teaches the Net a request type: of a key that kmsg does not
// know, or in place of kmsg's. make returns a new, empty request; its
// ResponseKind is what Answer builds on.
func (n *Net) RegisterRequest(make func() kmsg.Request) {
	key := make().Key()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests[key] = make
	clear(n.flex)
}
