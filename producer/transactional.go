package producer

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ktxn/ktxn/txnsession"
)

// The methods in this file are for a producer with a session of its own, made by
// NewTransactional. On any other they fail with txnsession.ErrState and do
// nothing: its transactions are moved by whoever holds the session.

func (p *Producer) owned(op string) error {
	if p.own {
		return nil
	}
	return refused(op, p.session, fmt.Errorf("the session was given to New; call its own method: %w", txnsession.ErrState))
}

// Initialize is Session.Initialize of the producer's own session.
func (p *Producer) Initialize(ctx context.Context) error {
	if err := p.owned("initialize"); err != nil {
		return err
	}
	return p.session.Initialize(ctx)
}

// Begin is Session.Begin of the producer's own session.
func (p *Producer) Begin(ctx context.Context) error {
	if err := p.owned("begin"); err != nil {
		return err
	}
	return p.session.Begin(ctx)
}

// Commit is Session.Commit of the producer's own session. It flushes first.
func (p *Producer) Commit(ctx context.Context) error {
	if err := p.owned("commit"); err != nil {
		return err
	}
	return p.session.Commit(ctx)
}

// Abort is Session.Abort of the producer's own session. Records that are not
// sent yet fail with kgo.ErrAborting.
func (p *Producer) Abort(ctx context.Context) error {
	if err := p.owned("abort"); err != nil {
		return err
	}
	return p.session.Abort(ctx)
}

// SendOffsets is Session.SendOffsets of the producer's own session.
func (p *Producer) SendOffsets(ctx context.Context, offsets map[string]map[int32]kgo.EpochOffset, group txnsession.GroupMetadata) error {
	if err := p.owned("send offsets"); err != nil {
		return err
	}
	return p.session.SendOffsets(ctx, offsets, group)
}

// Prepare is Session.Prepare of the producer's own session. It flushes first.
func (p *Producer) Prepare(ctx context.Context) (txnsession.PreparedTxn, error) {
	if err := p.owned("prepare"); err != nil {
		return txnsession.PreparedTxn{}, err
	}
	return p.session.Prepare(ctx)
}

// Complete is Session.Complete of the producer's own session.
func (p *Producer) Complete(ctx context.Context, stored txnsession.PreparedTxn) (txnsession.Verdict, error) {
	if err := p.owned("complete"); err != nil {
		return txnsession.Unknown, err
	}
	return p.session.Complete(ctx, stored)
}
