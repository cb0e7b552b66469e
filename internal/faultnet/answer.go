package faultnet

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const unsupportedVersion = 35

// AnswerFunc sets what Answer and AnswerAfter send for a key, in place of the
// answer that the Net would build: fn returns the encoded body, without size,
// correlation id and header tags. It is the way for a key that is registered
// nowhere (such a key is taken for flexible) and is called as Match is. A nil fn
// brings the Net's own answer back; Edit has nothing to edit here and is not
// called.
func (n *Net) AnswerFunc(key int16, fn func(req Request, code int16) (body []byte)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if fn == nil {
		delete(n.answers, key)
		return
	}
	n.answers[key] = fn
}

// buildAnswer returns the frame that tells the fault's code to the sender of req.
func (n *Net) buildAnswer(req Request, f *Fault) ([]byte, error) {
	n.mu.Lock()
	fn, brokers := n.answers[req.Key], n.brokers
	n.mu.Unlock()
	if fn != nil {
		return responseFrame(req.CorrelationID, req.flexibleAnswer(), fn(req, f.Code)), nil
	}
	kreq, err := req.Decode()
	if err != nil {
		return nil, fmt.Errorf("faultnet: no answer without the request: %w", err)
	}
	resp := kreq.ResponseKind()
	resp.SetVersion(kreq.GetVersion())
	fillErrors(kreq, resp, f.Code)
	likeBroker(resp, f.Code, brokers)
	if f.Edit != nil {
		f.Edit(kreq, resp)
	}
	body := resp.AppendTo(nil)
	if f.Code != 0 && f.Edit == nil && !carriesError(resp, body, f.Code) {
		return nil, fmt.Errorf("faultnet: the answer to this %s v%d has no place for an error code",
			kmsg.NameForKey(req.Key), req.Version)
	}
	return responseFrame(req.CorrelationID, req.flexibleAnswer(), body), nil
}

// rewriteAnswer returns the broker's answer after the fault's code and edit.
func (n *Net) rewriteAnswer(ex *exchange, frame []byte) ([]byte, error) {
	req := n.snapshot(ex.rec)
	body := frame[8:]
	if req.flexibleAnswer() {
		body = stripTags(body)
	}
	resp, err := decodeResponse(ex.req, body)
	if err != nil {
		return nil, err
	}
	if ex.hit.Code != 0 {
		overwriteErrors(resp, ex.hit.Code)
	}
	if ex.hit.Edit != nil {
		ex.hit.Edit(ex.req, resp)
	}
	return responseFrame(req.CorrelationID, req.flexibleAnswer(), resp.AppendTo(nil)), nil
}

// likeBroker gives an answer the values with which brokers accompany an error.
func likeBroker(resp kmsg.Response, code int16, brokers []kmsg.MetadataResponseBroker) {
	switch resp := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		if code == unsupportedVersion {
			// Readable to a client of any version, and says which to use.
			key := kmsg.NewApiVersionsResponseApiKey()
			key.ApiKey = resp.Key()
			key.MaxVersion = max(0, resp.GetVersion()-1)
			resp.ApiKeys = append(resp.ApiKeys, key)
			resp.SetVersion(0)
		}
	case *kmsg.MetadataResponse:
		// Without brokers a client would forget those it knows.
		resp.Brokers = slices.Clone(brokers)
	case *kmsg.ProduceResponse:
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				resp.Topics[i].Partitions[j].BaseOffset = -1
			}
		}
	case *kmsg.FindCoordinatorResponse:
		resp.NodeID, resp.Port = -1, -1
		for i := range resp.Coordinators {
			resp.Coordinators[i].NodeID, resp.Coordinators[i].Port = -1, -1
		}
	case *kmsg.InitProducerIDResponse:
		resp.ProducerID, resp.ProducerEpoch = -1, -1
	}
}
