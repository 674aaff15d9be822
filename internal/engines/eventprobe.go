package engines

import (
	"context"
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grapevine-epp/grapevine/events"
	"github.com/grapevine-epp/grapevine/events/zmtp"
)

// maxTopics bounds the number of topics recorded per stream.
const maxTopics = 16

// ear subscribes to all topics of an event stream.
type ear struct {
	conn *zmtp.Conn
	err  error // why it could not be connected to
	done chan struct{}

	mu       sync.Mutex
	topics   []string
	bytes    int
	received chan struct{} // closed with the first message
}

func listen(ctx context.Context, s events.Stream) *ear {
	e := &ear{done: make(chan struct{}), received: make(chan struct{})}
	if e.conn, e.err = zmtp.Dial(ctx, s.Events, zmtp.Options{}); e.err == nil {
		e.err = e.conn.Subscribe("")
	}
	if e.err != nil {
		close(e.done)
		return e
	}
	go e.read()
	return e
}

func (e *ear) read() {
	defer close(e.done)
	var m zmtp.Message
	for first := true; e.conn.Recv(&m) == nil; {
		if m.Len() < 2 {
			continue
		}
		topic := string(m.Frame(0))
		e.mu.Lock()
		if e.bytes += m.Size(); len(e.topics) < maxTopics && !slices.Contains(e.topics, topic) {
			e.topics = append(e.topics, topic)
		}
		e.mu.Unlock()
		if first {
			first = false
			close(e.received)
		}
	}
}

func (e *ear) close() {
	if e.conn != nil {
		_ = e.conn.Close()
	}
	<-e.done
}

// heard records the messages received from a stream. It returns true if there were any, or if the
// stream cannot be read.
func (l *looker) awaitMessage(ctx context.Context, s events.Stream, e *ear) bool {
	out := LiveStream{Events: s.Events, Replay: s.Replay, Topic: s.Topic, Topics: []string{}}
	defer func() { l.out.Streams = append(l.out.Streams, out) }()
	if e.err != nil {
		l.problem("events at %s cannot be read: %v", s.Events, e.err)
		return true
	}
	select {
	case <-e.received:
	case <-e.done:
	case <-ctx.Done():
	case <-time.After(streamTime):
	}
	e.mu.Lock()
	out.Topics, out.Bytes = append(out.Topics, e.topics...), e.bytes
	e.mu.Unlock()
	if len(out.Topics) > 0 && !slices.ContainsFunc(out.Topics, func(t string) bool { return strings.HasPrefix(t, s.Topic) }) {
		l.problem("events at %s have the topic %q, but %q is configured, so none is received", s.Events, out.Topics, s.Topic)
	}
	switch err := replays(ctx, s.Replay); {
	case s.Replay == "":
		l.note("no replay address is known for %s: lost events stay missing until the cache is empty", s.Events)
	case err != nil:
		l.problem("replay at %s: %v", s.Replay, err)
	}
	return len(out.Topics) > 0
}

// replays requests the newest batches. The response may be empty.
func replays(ctx context.Context, at string) error {
	if at == "" {
		return nil
	}
	conn, err := zmtp.Dial(ctx, at, zmtp.Options{Socket: zmtp.DEALER, Heartbeat: -1})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, 1<<62)); err != nil { // no batch has that number
		return err
	}
	conn.SetRecvDeadline(time.Now().Add(streamTime))
	var m zmtp.Message
	return conn.Recv(&m)
}
