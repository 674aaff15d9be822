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
)

// Link says how far a connection to a source's stream has come.
type Link uint8

// Links.
const (
	LinkDown   Link = iota // lost, or given up
	LinkUp                 // made; a replay may be under way
	LinkBlind              // batches are applied as they come, and what came before could not be had
	LinkCaught             // what the engine sent before has been applied
)

// Options configure a Manager.
type Options struct {
	Index  translate.Index // required
	Hasher block.Hasher    // required, the same for all replicas of a group

	// OnDelta, when set, is told of every delta after the index has it, in
	// order per source. It must not retain the delta.
	OnDelta func(Update)
	// OnRestart, when set, is told when the engine behind a source turned out
	// to be another one, or to have lost its history. The source's incarnation
	// is unknown from then on, until SetIncarnation. wrapped tells that the engine
	// may be the same, and only its replay ring has wrapped past what was applied.
	// No hook may call the Manager: they run while a stream is locked.
	OnRestart func(src block.Source, wrapped bool)
	// OnLink, when set, is told when the connection to a source's stream is
	// made, when all that came before it has been applied, and when it is lost. It
	// must not call the Manager.
	OnLink func(src block.Source, link Link)
	// Resume, when set, is asked for the position that the index has reached
	// for a source, when a stream to it is started. Without a position what
	// the index knows of the source is cleared.
	Resume func(src block.Source) (Position, bool)

	Log      *slog.Logger          // default: discards
	Registry prometheus.Registerer // default: none
	Now      func() time.Time      // default: steady.Now

	Replays      int           // replays at a time, over all streams; default 8
	ReplayIdle   time.Duration // longest pause within a replay; default 2 s
	ReplayTotal  time.Duration // longest replay; default 60 s
	CoolDown     time.Duration // pause after a failed replay, doubled up to eight times; default 1 s, so 1 s … 4 min
	Settle       time.Duration // from subscription to replay; default 20 ms
	Heartbeat    time.Duration // silence before a ping; default 2 s
	Handshake    time.Duration // bound of each connection attempt; default 3 s
	BackoffMin   time.Duration // first pause between connection attempts; default 50 ms
	BackoffMax   time.Duration // longest pause; default 2 s
	Grace        time.Duration // a lost connection is catching up for so long; default 5 s
	SharedRemote bool          // see TranslatorOptions
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

// Update is a delta on its way to others who want to know.
type Update struct {
	Source block.Source
	// Reset tells that the source starts from scratch: Delta is a single
	// OpClear, and First and Last mean nothing.
	Reset bool
	// First and Last are the batches that the delta covers.
	First, Last uint64
	// After is the position once the delta is applied.
	After Position
	Delta *block.Delta // valid until the hook returns
	// Paged tells that blocks were made of smaller ones (pages smaller than a unit, or
	// those of windows that are smaller than those of full attention), by what this
	// reader remembers of them. Missed tells that some pages found no place because
	// the engine stored what is before them before the first batch that was read.
	Paged, Missed bool
}

// Model is what reading streams needs to know of a base model. Streams are
// started again when their endpoint gets another *Model.
type Model struct {
	Name       string // as in block.Scope
	Vocabulary translate.Vocabulary
	Canonical  translate.Canonical
	Medium     func(id []byte)
	Adapter    func(name string) string
	Unit       int
}

// EndpointSource says where one endpoint publishes its events.
type EndpointSource struct {
	ID      block.EndpointID
	Name    string // ip:port, for logs and metrics
	Model   *Model
	Streams []Stream // one for each data-parallel rank
	Pod     string   // name by which its publishers may call themselves, "" for none
}

// Stream is the event stream of one rank.
type Stream struct {
	Rank   uint16
	Events string // PUB endpoint, tcp://host:port, or of InboundFrom
	Replay string // ROUTER endpoint; "" when there is none
	Topic  string // prefix to subscribe to; "" takes all
}

// PortStreams returns the streams of an engine that publishes rank r at
// port+r and replays at replayPort+r; replayPort 0 means no replay.
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
