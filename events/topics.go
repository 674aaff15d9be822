package events

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/grapevine-epp/grapevine/events/decode"
	"github.com/grapevine-epp/grapevine/events/zmtp"
)

// Bounds of glances.
const (
	glanceTime    = 10 * time.Second // one lasts no longer
	glanceAgain   = time.Minute      // from one to the next at the same stream
	glanceAtOnce  = 8                // at different streams
	glanceKept    = 4096             // streams of which is remembered what was found
	glanceLimit   = 64               // messages
	glanceMessage = 16 << 20         // bytes of one
	glanceEnough  = 2                // batches under the same topic
	glanceTopic   = 256              // bytes of a topic
)

// glances look at all that a publisher sends where nothing comes of the topic that is
// read: the subscription is filtered at the publisher, so that a wrong topic looks like an
// engine that has nothing to tell.
type glances struct {
	mu    sync.Mutex
	by    map[Stream]*glance
	busy  int
	found atomic.Int32 // of them, those that found another topic
	wg    sync.WaitGroup
}

// glance is the last one at a stream.
type glance struct {
	began time.Time
	found *TopicMismatch // nil: nothing, or that all is as it should be
}

// TopicMismatch says that all batches of a publisher came under one topic, and that this is not
// the one that is read.
type TopicMismatch struct {
	Topic string // "": none
	At    int64  // when that was seen, Unix ns
}

// ProbeTopics has somebody look, for a moment and on a connection of its own, at all that the
// publishers of streams send, unless that was done a moment ago or too many are being
// looked at. It does not wait; TopicMismatch says what was found.
func (m *Manager) ProbeTopics(streams []Stream) {
	for _, s := range streams {
		if _, inbound := s.dialsIn(); inbound || s.Topic == "" || !m.glances.begin(s, m.opt.Now()) {
			continue
		}
		go func() {
			defer m.glances.wg.Done()
			found := m.glance(s)
			m.glances.end(s, found)
			if found != nil {
				m.opt.Log.Warn("events come under another topic alone than the one that is read", "events", s.Events, "topic", found.Topic, "read", s.Topic)
			}
		}()
	}
}

// TopicMismatch returns what was seen of the first of streams whose publisher sends under another
// topic alone than the one that is read; nil for none.
func (m *Manager) TopicMismatch(streams []Stream) *TopicMismatch {
	g := &m.glances
	if g.found.Load() == 0 {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range streams {
		if l := g.by[s]; l != nil && l.found != nil {
			return l.found
		}
	}
	return nil
}

// begin reports whether a stream may be looked at. Then end must follow.
func (g *glances) begin(s Stream, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.by[s]
	if g.busy >= glanceAtOnce || g.by == nil || l != nil && now.Sub(l.began) < glanceAgain {
		return false
	}
	if l == nil {
		if len(g.by) >= glanceKept {
			g.drop(now)
		}
		if len(g.by) >= glanceKept {
			return false
		}
		l = &glance{}
		g.by[s] = l
	}
	l.began = now
	g.busy++
	g.wg.Add(1)
	return true
}

// drop forgets what was found long ago; mu is held.
func (g *glances) drop(now time.Time) {
	for s, l := range g.by {
		if now.Sub(l.began) >= glanceAgain {
			g.keep(l, nil)
			delete(g.by, s)
		}
	}
}

func (g *glances) end(s Stream, found *TopicMismatch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	if l := g.by[s]; l != nil {
		g.keep(l, found)
	}
}

// keep notes what was found; mu is held.
func (g *glances) keep(l *glance, found *TopicMismatch) {
	if l.found != nil {
		g.found.Add(-1)
	}
	if l.found = found; found != nil {
		g.found.Add(1)
	}
}

// close has no further one begin, and waits for those under way: their context has ended.
func (g *glances) close() {
	g.mu.Lock()
	g.by = nil
	g.mu.Unlock()
	g.wg.Wait()
}

// glance looks at what the publisher of s sends. It finds nothing if some of it comes as
// it should, if it comes under several topics, as through a forwarder, or if nothing does.
func (m *Manager) glance(s Stream) *TopicMismatch {
	ctx, cancel := context.WithTimeout(m.ctx, glanceTime)
	defer cancel()
	conn, err := zmtp.Dial(ctx, s.Events, zmtp.Options{
		Handshake: m.opt.Handshake, Limits: zmtp.Limits{Frame: glanceMessage, Message: glanceMessage},
	})
	if err != nil {
		return nil
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if conn.Subscribe("") != nil {
		return nil
	}
	other, batches := "", 0
	var msg zmtp.Message
	var batch decode.Batch
	for range glanceLimit {
		if conn.Recv(&msg) != nil {
			return nil
		}
		_, payload, ok := parseBatch(&msg)
		if !ok || batch.Decode(payload) != nil || len(batch.Events) == 0 {
			continue // a heartbeat, or of another service on the same port
		}
		topic := string(msg.Frame(0)[:min(len(msg.Frame(0)), glanceTopic)])
		if strings.HasPrefix(topic, s.Topic) || batches > 0 && topic != other {
			return nil
		}
		if other, batches = topic, batches+1; batches == glanceEnough {
			return &TopicMismatch{other, m.opt.Now().UnixNano()}
		}
	}
	return nil
}
