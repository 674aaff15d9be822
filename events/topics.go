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

// Limits of topic probes.
const (
	topicProbeTime     = 10 * time.Second // maximum duration
	topicProbeInterval = time.Minute      // minimum interval per stream
	maxTopicProbes     = 8                // concurrent probes of different streams
	maxTopicResults    = 4096             // streams with a stored result
	topicProbeMessages = 64               // messages
	topicProbeBytes    = 16 << 20         // bytes of one
	topicProbeBatches  = 2                // batches with the same topic for a result
	maxTopicBytes      = 256              // bytes of a topic
)

// topicProbes probes publishers without filtering if nothing arrives for the subscribed topic.
// Subscriptions are filtered by the publisher, so a wrong topic looks like an engine without
// events.
type topicProbes struct {
	mu    sync.Mutex
	by    map[Stream]*topicProbe
	busy  int
	found atomic.Int32 // number of probes that found another topic
	wg    sync.WaitGroup
}

// topicProbe is the last probe of a stream.
type topicProbe struct {
	began time.Time
	found *TopicMismatch // nil: no mismatch
}

// TopicMismatch means that all batches of a publisher had one topic other than the subscribed one.
type TopicMismatch struct {
	Topic string // "": no topic
	At    int64  // time of detection, Unix ns
}

// ProbeTopics starts short probes of everything that the streams' publishers send, on separate
// connections, unless they were probed recently or too many probes are running. It does not wait;
// TopicMismatch returns the result.
func (m *Manager) ProbeTopics(streams []Stream) {
	for _, s := range streams {
		if _, inbound := s.dialsIn(); inbound || s.Topic == "" || !m.topicProbes.begin(s, m.opt.Now()) {
			continue
		}
		go func() {
			defer m.topicProbes.wg.Done()
			found := m.probeTopic(s)
			m.topicProbes.end(s, found)
			if found != nil {
				m.opt.Log.Warn("publisher uses another topic than the subscribed one", "events", s.Events, "topic", found.Topic, "read", s.Topic)
			}
		}()
	}
}

// TopicMismatch returns the first mismatch found among streams, or nil.
func (m *Manager) TopicMismatch(streams []Stream) *TopicMismatch {
	g := &m.topicProbes
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

// begin reports whether a stream may be probed. Then end must follow.
func (g *topicProbes) begin(s Stream, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.by[s]
	if g.busy >= maxTopicProbes || g.by == nil || l != nil && now.Sub(l.began) < topicProbeInterval {
		return false
	}
	if l == nil {
		if len(g.by) >= maxTopicResults {
			g.drop(now)
		}
		if len(g.by) >= maxTopicResults {
			return false
		}
		l = &topicProbe{}
		g.by[s] = l
	}
	l.began = now
	g.busy++
	g.wg.Add(1)
	return true
}

// drop removes old results. The caller holds mu.
func (g *topicProbes) drop(now time.Time) {
	for s, l := range g.by {
		if now.Sub(l.began) >= topicProbeInterval {
			g.keep(l, nil)
			delete(g.by, s)
		}
	}
}

func (g *topicProbes) end(s Stream, found *TopicMismatch) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy--
	if l := g.by[s]; l != nil {
		g.keep(l, found)
	}
}

// keep stores a result. The caller holds mu.
func (g *topicProbes) keep(l *topicProbe, found *TopicMismatch) {
	if l.found != nil {
		g.found.Add(-1)
	}
	if l.found = found; found != nil {
		g.found.Add(1)
	}
}

// close prevents further probes and waits for the running ones, whose context has ended.
func (g *topicProbes) close() {
	g.mu.Lock()
	g.by = nil
	g.mu.Unlock()
	g.wg.Wait()
}

// probeTopic probes the publisher of s. It returns nil if some messages have the subscribed topic, if
// they have several topics, as through a forwarder, or if there are none.
func (m *Manager) probeTopic(s Stream) *TopicMismatch {
	ctx, cancel := context.WithTimeout(m.ctx, topicProbeTime)
	defer cancel()
	conn, err := zmtp.Dial(ctx, s.Events, zmtp.Options{
		Handshake: m.opt.Handshake, Limits: zmtp.Limits{Frame: topicProbeBytes, Message: topicProbeBytes},
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
	for range topicProbeMessages {
		if conn.Recv(&msg) != nil {
			return nil
		}
		_, payload, ok := parseBatch(&msg)
		if !ok || batch.Decode(payload) != nil || len(batch.Events) == 0 {
			continue // a heartbeat, or another service on the same port
		}
		topic := string(msg.Frame(0)[:min(len(msg.Frame(0)), maxTopicBytes)])
		if strings.HasPrefix(topic, s.Topic) || batches > 0 && topic != other {
			return nil
		}
		if other, batches = topic, batches+1; batches == topicProbeBatches {
			return &TopicMismatch{other, m.opt.Now().UnixNano()}
		}
	}
	return nil
}
