package events

import (
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/grapevine-epp/grapevine/events/translate"
	"github.com/grapevine-epp/grapevine/indexer/block"
	"github.com/grapevine-epp/grapevine/internal/monotime"
	"github.com/grapevine-epp/grapevine/internal/ticks"
)

// Link is the state of a source's connection.
type Link uint8

// Links.
const (
	LinkDown   Link = iota // lost or given up
	LinkUp                 // connected; a replay may be in progress
	LinkBlind              // live batches are applied; earlier ones were unavailable
	LinkCaught             // all earlier batches have been applied
)

// Options configures a Manager.
type Options struct {
	Index  translate.Index // required
	Hasher block.Hasher    // required, the same for all replicas of a group

	// OnDelta, if set, is called with every delta after the index has applied it, in order per
	// source. It must not retain the delta.
	OnDelta func(Update)
	// OnRestart, if set, is called when the engine of a source was replaced or lost its history.
	// The source's incarnation is then unknown until SetIncarnation. wrapped means that it may be
	// the same engine whose replay ring has passed the last applied batch. Hooks must not call the
	// Manager, because they run while a stream is locked.
	OnRestart func(src block.Source, wrapped bool)
	// OnLink, if set, is called when a source's connection is established, when it has caught up,
	// and when it is lost. It must not call the Manager.
	OnLink func(src block.Source, link Link)
	// Resume, if set, returns the position that the index has reached for a source when its stream
	// starts. Without a position, the index data of the source is cleared.
	Resume func(src block.Source) (Position, bool)

	Log      *slog.Logger          // default: discards
	Registry prometheus.Registerer // default: none
	Now      func() time.Time      // default: the monotonic clock

	Replays      int           // concurrent replays over all streams; default 8
	ReplayIdle   time.Duration // longest pause within a replay; default 2 s
	ReplayTotal  time.Duration // longest replay; default 60 s
	CoolDown     time.Duration // pause after a failed replay, doubled up to eight times; default 1 s, so 1 s … 4 min
	Settle       time.Duration // from subscription to the first replay; default 20 ms
	Heartbeat    time.Duration // silence before a ping; default 2 s
	Handshake    time.Duration // bound of each connection attempt; default 3 s
	BackoffMin   time.Duration // first pause between connection attempts; default 50 ms
	BackoffMax   time.Duration // longest pause; default 2 s
	Grace        time.Duration // how long a lost connection counts as catching up; default 5 s
	SharedRemote bool          // see translate.Options
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = monotime.Now
	}
	o.Replays = defaultInt(o.Replays, 8)
	for _, d := range []struct {
		v         *time.Duration
		otherwise time.Duration
	}{
		{&o.ReplayIdle, 2 * time.Second},
		{&o.ReplayTotal, time.Minute},
		{&o.CoolDown, time.Second},
		{&o.Settle, 20 * time.Millisecond},
		{&o.Heartbeat, 2 * time.Second},
		{&o.Handshake, 3 * time.Second},
		{&o.BackoffMin, 50 * time.Millisecond},
		{&o.BackoffMax, 2 * time.Second},
		{&o.Grace, 5 * time.Second},
	} {
		if *d.v <= 0 {
			*d.v = d.otherwise
		}
	}
	return o
}

// Update is a delta with its positions, for sharing.
type Update struct {
	Source block.Source
	// Reset means that the source starts from scratch: Delta is a single OpClear, and First and
	// Last are unused.
	Reset bool
	// First and Last are the batches that the delta covers.
	First, Last uint64
	// After is the position after the delta.
	After Position
	Delta *block.Delta // valid until the hook returns
	// Paged means that blocks were assembled from smaller ones, using this reader's state. These
	// are pages smaller than a unit, or blocks of windows smaller than the full-attention blocks.
	// Missed means that some pages had no known predecessor because the engine stored it before the
	// first batch read.
	Paged, Missed bool
}

// Model is the data of a base model needed to read streams. Streams restart when their endpoint
// gets another *Model.
type Model struct {
	Name       string // as in block.Scope
	Vocabulary translate.Vocabulary
	Canonical  translate.Canonical
	Medium     func(id []byte)
	Adapter    func(name string) string
	Unit       int
}

// EndpointSource defines the event streams of one endpoint.
type EndpointSource struct {
	ID      block.EndpointID
	Name    string // ip:port, for logs and metrics
	Model   *Model
	Streams []Stream // one per data-parallel rank
	Pod     string   // name in its publishers' topics, "" for none
}

// Stream is the event stream of one rank.
type Stream struct {
	Rank   uint16
	Events string // PUB endpoint, tcp://host:port, or InboundFrom
	Replay string // ROUTER endpoint; "": none
	Topic  string // topic prefix to subscribe to; "" subscribes to all
}

// PortStreams returns the streams of an engine that publishes rank r at port+r and replays at
// replayPort+r; replayPort 0 means no replay.
func PortStreams(host string, port, replayPort, ranks int, topic string) []Stream {
	streams := make([]Stream, 0, ranks)
	for r := range ranks {
		s := Stream{Rank: uint16(r), Events: tcp(host, port+r), Topic: topic}
		if replayPort > 0 {
			s.Replay = tcp(host, replayPort+r)
		}
		streams = append(streams, s)
	}
	return streams
}

func defaultInt(v, otherwise int) int {
	if v > 0 {
		return v
	}
	return otherwise
}

func tcp(host string, port int) string {
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// alignPing returns the latest common instant of the process before a PING is due, at most half a
// Heartbeat earlier.
func (o *Options) alignPing(due time.Time) time.Time { return ticks.Last(due, o.Heartbeat/2) }
