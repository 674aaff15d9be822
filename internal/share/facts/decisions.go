package facts

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
)

// DecisionOptions configure Decisions. All fields are required.
type DecisionOptions struct {
	Group Group
	// Find returns this replica's decision about a request in wire form, or nil. It is called on the
	// goroutine of Run.
	Find func(id string) []byte
}

// Decisions asks the other replicas for decisions that they made. Questions and answers may be lost,
// so a question has a time limit. Safe for concurrent use.
type Decisions struct {
	o     DecisionOptions
	send  SendFunc
	asked chan inquiry

	mu   sync.Mutex
	next uint64
	open map[uint64]chan DecisionAnswer // by nonce of the question
}

// inquiry is another replica's question.
type inquiry struct {
	nonce uint64
	id    string
}

// DecisionAnswer is one replica's answer.
type DecisionAnswer struct {
	Member   string // the replica's member ID
	Decision []byte // nil: it has none
}

// Limits of questions and answers.
const (
	maxInquiries     = 16 // waiting to be answered; more are dropped
	maxDecisionID    = 4 << 10
	maxDecisionBytes = 192 << 10

	wireInquiry = 'q'
	wireAnswer  = 'a'
)

// NewDecisions registers the feed of questions and answers.
func NewDecisions(o DecisionOptions) *Decisions {
	d := &Decisions{o: o, asked: make(chan inquiry, maxInquiries), open: map[uint64]chan DecisionAnswer{}}
	d.next = rand.Uint64() // nonces of different replicas differ, so that a replica ignores answers to others
	d.send = o.Group.Feed(stateDecisions, StateVersion, d)
	return d
}

// Run answers questions until ctx ends.
func (d *Decisions) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-d.asked:
			found := d.o.Find(q.id)
			if len(found) > maxDecisionBytes {
				found = nil
			}
			d.send(append(appendNonce(wireAnswer, q.nonce, len(found)), found...))
		}
	}
}

// Ask asks the other replicas for their decision about a request. It returns when the members have
// answered, or when ctx ends.
func (d *Decisions) Ask(ctx context.Context, id string, members []string) (answers []DecisionAnswer) {
	if len(members) == 0 || len(id) > maxDecisionID {
		return nil
	}
	replies := make(chan DecisionAnswer, 2*len(members))
	d.mu.Lock()
	d.next++
	nonce := d.next
	d.open[nonce] = replies
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.open, nonce)
		d.mu.Unlock()
	}()
	d.send(append(appendNonce(wireInquiry, nonce, len(id)), id...))
	for len(answers) < len(members) {
		select {
		case <-ctx.Done():
			return answers
		case a := <-replies:
			answers = append(answers, a)
		}
	}
	return answers
}

// Deliver implements cluster.FeedSink.
func (d *Decisions) Deliver(member string, _ uint64, payload []byte) error {
	const head = 1 + 8
	if len(payload) < head {
		return errWire
	}
	nonce, rest := binary.LittleEndian.Uint64(payload[1:]), payload[head:]
	switch payload[0] {
	case wireInquiry:
		if len(rest) > maxDecisionID {
			return errWire
		}
		select {
		case d.asked <- inquiry{nonce, string(rest)}:
		default:
		}
	case wireAnswer:
		d.mu.Lock()
		replies := d.open[nonce]
		d.mu.Unlock()
		a := DecisionAnswer{Member: member}
		if len(rest) > 0 {
			a.Decision = append([]byte(nil), rest...)
		}
		select {
		case replies <- a: // nil: the question was not asked here, or has ended
		default:
		}
	default:
		return errWire
	}
	return nil
}

func appendNonce(kind byte, nonce uint64, more int) []byte {
	return binary.LittleEndian.AppendUint64(append(make([]byte, 0, 9+more), kind), nonce)
}
